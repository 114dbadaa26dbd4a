// Which runs mirror the shards of ZeRO, or the slices of parameter servers (survive.mirror,
// train/run/shard_mirror.h), and the memory of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/strategy/served_states.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Why a run of several workers on `device` cannot mirror shards; empty: it can.
std::string cannot_mirror(const TrainOptions& options, Device device);
// Whether workers of the run keep shards; one that is alone keeps the whole.
bool keeps_shards(const TrainOptions& options, Device device);
// Whether the run mirrors shards.
bool mirrors_shards(const TrainOptions& options, Device device);

// How many workers, the first ones, mirror each other's shards: all; but where workers do not wait
// for each other, those with servers.
int mirroring_workers(const TrainOptions& options);

// How many flat buffers of states there are: the master copy and those of the optimizer.
std::size_t state_count(nn::OptimizerState optimizer);
// The bytes of one copy of a worker's shard: the master copy and the optimizer's states. The same
// on all workers.
std::size_t shard_bytes(const nn::MemoryPlan& plan);
// With parameter servers: all slices, and how many servers have them.
std::vector<parallel::ServedSlice> served_slices_of(const TrainOptions& options,
                                                    const nn::MemoryPlan& plan);
int server_count(std::span<const parallel::ServedSlice> slices);

// The memory of a worker's mirror. With servers on several nodes, where the ranks' places decide
// whose slices it mirrors: the most that it may take.
std::vector<Request> mirror_memory(const TrainOptions& options, const nn::MemoryPlan& plan,
                                   int worker);

}  // namespace lockstep::train
