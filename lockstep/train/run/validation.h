// What a model makes of data that it has not learned from.
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
  std::optional<double> loss;  // nothing where there is no target, and where it was cut short
  bool cut = false;            // since a worker was asked to end
};

// The mean loss over the first `most` micro-batches of validation, over all where it is 0. They are
// dealt out to the workers of the group, which all call this, and their losses added up in the
// order of the micro-batches: so it is the same for any number of workers, and so is whether one of
// them cut it short.
//
// Where the workers of `strategy` shard parameters, all of them do a forward at the same time,
// or stand in for one.
Validation validation_loss(nn::Replica& replica, parallel::Strategy& strategy, BatchSource& source,
                           RunGroup& group, std::int64_t most, const StopSignal& stop);

}  // namespace lockstep::train
