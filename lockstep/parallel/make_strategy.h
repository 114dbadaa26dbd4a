// The strategy that the settings ask for.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/strategy.h"

namespace lockstep::parallel {

// Called by all ranks of `world`, which outlives it; nullptr: one worker. `most_micro_batches` of
// one worker's share of a step.
std::unique_ptr<Strategy> make_strategy(const ParallelOptions& options, Communicator* world,
                                        std::int64_t most_micro_batches);

}  // namespace lockstep::parallel
