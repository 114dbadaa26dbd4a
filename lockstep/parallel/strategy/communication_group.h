// The communicator of what workers exchange during a step.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/parallel/strategy/options.h"

namespace lockstep::parallel {

// Of the same ranks as `world`, over the memory of options.device. Called by all of them.
std::unique_ptr<Communicator> communication_group(Communicator& world,
                                                  const ParallelOptions& options);

// The memory that it takes on the device of a plan, besides its symmetric memory.
std::size_t communication_group_bytes(const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
