// What a worker holds of a model and takes besides, before there are any workers: what a memory
// plan has to know of a strategy.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/nn/memory_plan.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/worker_position.h"

namespace lockstep::parallel {

// What of the states is shared out among workers, and seen by them.
nn::Sharding sharding_of(const ParallelOptions& options, const WorkerPosition& position);

// Adds what a worker's strategy takes, a server beside it included, to what the plan has outside,
// in the group kCommunicationGroup and those of parallel/zero/exchange.h. `plan` was made with that
// sharding.
void add_memory(const ParallelOptions& options, const optim::OptimizerOptions& optimizer,
                const WorkerPosition& position, nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
