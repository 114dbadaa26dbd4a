// The exchange between workers at the beginning and the end of a step. Called by all of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/parameters/sharding.h"
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
// The sum of the losses of all workers' micro-batches, one after the other in the order of the
// micro-batches. `most_micro_batches`: the most in one worker's share.
double sum_of_losses(Communicator& world, std::span<const double> mine,
                     std::int64_t most_micro_batches);
// The same with the costs of all workers.
StepSummary agree_to_end(Communicator& world, const StepEnd& mine, const StepTraffic& traffic,
                         const StepWaits& waits, std::int64_t most_micro_batches);

// The hashes of what all workers hold, and of the experts of this one (nn/expert_group.h), which
// are not compared without expert groups. Returns the first. Throws Error(kMismatch), with the
// workers that differ from the first one that holds the same.
std::string agree_on_hashes(Communicator& world, const std::string& common,
                            const std::string& experts, const nn::Sharding& sharding);
// The hash of what all workers hold. Throws Error(kMismatch), with the workers whose hash differs
// from that of worker 0.
std::string agree_on_hash(Communicator& world, const std::string& mine);

}  // namespace lockstep::parallel
