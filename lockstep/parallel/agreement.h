// What workers in lockstep tell each other at the beginning and at the end of a step. Called by all
// of them.
#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/strategy.h"

namespace lockstep::parallel {

// The sum of what all bring; whether one of them stops.
StepStart agree_to_begin(Communicator& world, const StepStart& mine);

// `most_micro_batches` of one worker's share.
StepSummary agree_to_end(Communicator& world, std::span<const double> losses, const StepCost& cost,
                         std::int64_t most_micro_batches);

}  // namespace lockstep::parallel
