// What workers in lockstep tell each other at the beginning and at the end of a step. Called by all
// of them.
#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/strategy/step_waits.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

// The sum of what all bring; whether one of them stops.
StepStart agree_to_begin(Communicator& world, const StepStart& mine, StepWaits& waits);

// What a worker's step cost besides compute.
struct StepTraffic {
  CommunicationThread::Cost cost;
  std::uint64_t bytes_across = 0;
};
// `most_micro_batches` of one worker's share.
StepSummary agree_to_end(Communicator& world, const StepEnd& mine, const StepTraffic& traffic,
                         const StepWaits& waits, std::int64_t most_micro_batches);

}  // namespace lockstep::parallel
