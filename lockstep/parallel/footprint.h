// What a worker holds of a model and takes besides, before there are any workers: what a memory
// plan has to know of a strategy.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/sharding_of.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// Adds what a worker's strategy takes, a server beside it included, to what the plan has outside,
// in the group kCommunicationGroup and those of parallel/zero/exchange.h. `plan` was made with that
// sharding.
void add_memory(const ParallelOptions& options, const optim::OptimizerOptions& optimizer,
                const WorkerPosition& position, nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
