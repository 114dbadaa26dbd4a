// Which runs mirror shards (survive.mirror, train/run/shard_mirror.h), and the memory of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Why a run of several workers on `device` cannot mirror shards; empty: it can.
std::string cannot_mirror(const TrainOptions& options, Device device);
// Whether workers of the run keep shards; one that is alone keeps the whole.
bool keeps_shards(const TrainOptions& options, Device device);
// Whether the run mirrors shards.
bool mirrors_shards(const TrainOptions& options, Device device);

// How many flat buffers of states there are: the master copy and those of the optimizer.
std::size_t state_count(nn::OptimizerState optimizer);
// The bytes of one copy of a worker's shard: the master copy and the optimizer's states. The same
// on all workers.
std::size_t shard_bytes(const nn::MemoryPlan& plan);
// The memory of a worker's mirror.
std::vector<Request> mirror_memory(const nn::MemoryPlan& plan);

}  // namespace lockstep::train
