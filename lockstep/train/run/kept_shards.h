// What a worker with a shard of the states (ZeRO) keeps when others are lost, and how the next
// generation continues from it.
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
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// A shard after a step: the master copy and the optimizer's states, block by block.
struct ShardVersion {
  TrainState state;
  std::optional<StepMetrics> metrics;  // of its last step
  Buffer bytes;
};

struct KeptShards {
  std::vector<ShardVersion> own;
  int ward = 0;
  std::vector<ShardVersion> mirrored;
};

// The states of this worker, or its shard of them, as bytes. / How many these are.
std::size_t packed_bytes(nn::Replica& replica);
void pack_states(nn::Replica& replica, std::span<std::byte> bytes);
void put_states(std::span<const std::byte> bytes, nn::Replica& replica);

// Where a generation continues.
struct CommonStep {
  TrainState state;
  std::optional<StepRecord> record;  // of its last step, for the leader
  std::vector<int> holders;          // that have the shard of each worker: itself, or its holder
};
struct CommonStepSearch {
  std::optional<CommonStep> found;
  std::string lost;  // for people: why nothing was found, though workers have kept shards
};
// Called by all workers.
CommonStepSearch find_common_step(const std::optional<KeptShards>& mine, RunGroup group);
// Sets this worker's states. Called by all workers.
void restore_shards(const CommonStep& step, const std::optional<KeptShards>& mine, RunGroup group,
                    nn::Replica& replica);
// "the shards in memory, that of rank 2 from its mirror on rank 0"
std::string describe(const CommonStep& step);

}  // namespace lockstep::train
