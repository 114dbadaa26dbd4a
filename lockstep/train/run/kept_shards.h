// What a worker with a shard of the states keeps when others are lost, and how the next generation
// continues from it.
//
// A worker has its own shard after one or two steps, and the mirrored shard of its *ward* after one
// or two (train/run/shard_mirror.h). The next generation continues after the last step of which
// every shard is left: with its worker, or with the worker that mirrors it, its *holder*.
//
//   worker   its own     of its ward
//   0        41, 42      2: 41              after 42 nobody has the shard of worker 2;
//   1        41, 42      0: 41, 42          after 41 all are there: worker 2 gets its shard
//   2        (killed)                       from worker 0, and step 42 is computed again
//
// Where a shard and its mirror are lost together the run continues from the newest checkpoint.
//
// With parameter servers a shard is what a server's slices hold, and has its number, that of the
// worker beside it. The next generation gathers all slices at worker 0, whose states the servers
// then begin with (Strategy::start).
//
// The next generation of ZeRO may have another number of workers, and number them again. Then every
// worker gets the parts of its new shard from the holders of the former shards that overlap it:
//
//   a block of 3 workers   | 0     | 1     | 2     |
//   of 2                   | 0         | 1         |      worker 1: the end of shard 1, and shard 2
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/served_states.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// A shard after a step: the master copy and the optimizer's states, block by block.
struct ShardVersion {
  TrainState state;
  std::optional<StepMetrics> metrics;  // of its last step
  Buffer bytes;
};

// Which elements of a block, or of a slice of servers, a shard has, counted from its first.
struct ShardPart {
  std::uint64_t first = 0;
  std::uint64_t elements = 0;
  std::uint64_t end() const { return first + elements; }
};
// Of every shard: its parts, one for each block or slice.
using ShardParts = std::vector<std::vector<ShardPart>>;
ShardParts parts_of(const nn::MemoryPlan& plan);
ShardParts parts_of(std::span<const parallel::ServedSlice> slices);

struct KeptShards {
  int numbering = 0;  // Survival::numbering, of the numbers of workers below
  int worker = 0;     // this one's shard; -1: it has none
  ShardParts parts;   // of all workers
  std::vector<ShardVersion> own;
  int ward = 0;  // -1: it has none
  std::vector<ShardVersion> mirrored;
};

// The states of this worker, or its shard of them, as bytes. / How many these are.
std::size_t packed_bytes(nn::Replica& replica);
void pack_states(nn::Replica& replica, std::span<std::byte> bytes);
void put_states(std::span<const std::byte> bytes, nn::Replica& replica);

// The whole states of a single worker as its shard, where `settled` is known.
KeptShards keep_whole_shard(nn::Replica& replica, const std::optional<Trainer::Settled>& settled);

// Where a generation continues.
struct CommonStep {
  TrainState state;
  std::optional<StepRecord> record;  // of its last step, for the leader
  int numbering = 0;
  // That have the shard of each former worker: the worker itself, or its holder; and which of the
  // two.
  std::vector<int> holders;
  std::vector<bool> mirrored;
  ShardParts parts;  // of the former workers
  int workers = 0;   // of the generation that continues
};
struct CommonStepSearch {
  std::optional<CommonStep> found;
  std::string lost;  // for people: why nothing was found, though workers have kept shards
};
// Of workers that do not wait for each other: all versions count as those after the last step that
// any worker has done. Called by all workers.
void align_steps(std::optional<KeptShards>& mine, RunGroup group);
// Called by all workers.
CommonStepSearch find_common_step(const std::optional<KeptShards>& mine, RunGroup group);
// Sets this worker's states; those of servers: worker 0's. Called by all workers.
void restore_shards(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    nn::Replica& replica);
void restore_slices(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    std::span<const parallel::ServedSlice> slices, nn::Replica& replica);
// "the shards in memory, that of rank 2 from its mirror on rank 0"; with another number of workers
// also "resharded among 3 ranks". / "the slices in memory, those of server 2 from their mirror on
// rank 3"
std::string describe(const CommonStep& step);
std::string describe_slices(const CommonStep& step);

}  // namespace lockstep::train
