// The exchange between workers at the beginning and the end of a step. Called by all of them.
#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/strategy/step_waits.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

// The sum over all workers, and whether one of them stops.
StepStart agree_to_begin(Communicator& world, const StepStart& mine, StepWaits& waits);

// The communication of a worker's step.
struct StepTraffic {
  CommunicationThread::Cost cost;
  std::uint64_t bytes_across = 0;
};
// `most_micro_batches`: the most in one worker's share.
StepSummary agree_to_end(Communicator& world, const StepEnd& mine, const StepTraffic& traffic,
                         const StepWaits& waits, std::int64_t most_micro_batches);

}  // namespace lockstep::parallel
