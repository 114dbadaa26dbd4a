// The memory that a strategy needs on a worker, for memory plans.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/served_states.h"
#include "lockstep/parallel/strategy/sharding_of.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// Adds the memory of a worker's strategy, including a colocated server, to the plan's outside
// memory, in the group kCommunicationGroup and those of parallel/zero/exchange.h. `plan` must have
// been made with that sharding.
void add_memory(const ParallelOptions& options, const optim::OptimizerOptions& optimizer,
                const WorkerPosition& position, nn::MemoryPlan& plan);

// With parameter servers: all slices, in their order in the flat buffer of the plan.
std::vector<ServedSlice> served_slices(const ParallelOptions& options,
                                       const optim::OptimizerOptions& optimizer,
                                       const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
