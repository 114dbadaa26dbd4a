// The validation loss.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct Validation {
  std::optional<double> loss;  // nothing without targets, and if it was stopped
  bool cut = false;            // a worker was asked to stop
};

// How many of the sequences that are held back a validation takes, by train.validate_batches. Where
// it is left open a validation costs kValidationShare of the FLOPs of the steps between two of
// them, but takes one sequence at least. It depends on settings alone, so that a run can be
// repeated.
inline constexpr double kValidationShare = 0.05;
std::uint64_t validated_sequences(const RunOptions& options);

// Called on the leader with the number of finished micro-batches and of all, also before the first
// one.
using TellValidation = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Those who share a validation and what each of them does. All must outlive the call.
struct Validators {
  nn::Replica& replica;
  BatchSource& source;
  RunGroup& group;
  // Micro-batch i is that of worker i % workers. The ranks that compute one together, in whatever
  // way, are one worker.
  std::uint64_t workers = 1;
  std::uint64_t worker = 0;
  // Losses of a micro-batch, as Replica::evaluate() returns them.
  std::function<Tensor(const nn::Batch&)> evaluate;
  // Takes part in a micro-batch of others, and may compute this one to do so; empty: nothing to do.
  std::function<void(std::uint64_t)> stand_in = {};
};

// The mean loss over all micro-batches of validation that the source has. The workers of the group
// share them and all call this. Losses are summed in the order of the micro-batches, so the mean is
// the same for any number of workers, and so is whether a stop signal cut it short.
//
// With sharded parameters all workers run a forward at the same time, or stand in for one.
Validation validation_loss(const Validators& validators, const StopSignal& stop,
                           const TellValidation& tell);

// The same by the workers of a run.
Validation validation_loss(nn::Replica& replica, parallel::Strategy& strategy, BatchSource& source,
                           RunGroup& group, const StopSignal& stop, const TellValidation& tell);

}  // namespace lockstep::train
