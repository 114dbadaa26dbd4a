// Which states the workers of a run shard, from its settings alone.
#pragma once

#include "lockstep/nn/parameters/sharding.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

// Which states are sharded among workers, and which lie in symmetric memory.
nn::Sharding sharding_of(const ParallelOptions& options, const WorkerPosition& position);

}  // namespace lockstep::parallel
