// The sharding of states that the settings imply.
#pragma once

#include "lockstep/nn/parameters/sharding.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// Which states are sharded over workers, and which are in symmetric memory.
nn::Sharding sharding_of(const ParallelOptions& options, const WorkerPosition& position);

}  // namespace lockstep::parallel
