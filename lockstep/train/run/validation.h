// The validation loss.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct Validation {
  std::optional<double> loss;  // nothing without targets, and if it was stopped
  bool cut = false;            // a worker was asked to stop
};

// The mean loss over the first `most` micro-batches of validation, over all where it is 0. They are
// distributed over the workers of the group, which all call this, and their losses are summed in
// the order of the micro-batches, so the result does not depend on the number of workers.
//
// With sharded parameters all workers run a forward at the same time, or stand in for one.
Validation validation_loss(nn::Replica& replica, parallel::Strategy& strategy, BatchSource& source,
                           RunGroup& group, std::int64_t most, const StopSignal& stop);

}  // namespace lockstep::train
