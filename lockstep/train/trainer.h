// One worker that trains: a replica, an optimizer, and what a step does with both.
//
//   Trainer trainer(options, ops);
//   for (...) print(trainer.step(micro_batches));
//
// A step adds up the gradients of its micro-batches, brings them down to the clipped norm, moves
// the f32 parameters, and rounds the copy that is computed with. Where a gradient is infinite or no
// number the step changes nothing but the loss scale, and is reported as skipped. A step of one
// micro-batch of 8 sequences and one of 4 micro-batches of 2 are the same training: the loss is the
// mean over all targets of the step.
//
// Memory is taken once, at construction, as planned; a run over options.memory_limit is refused
// before that. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/nn/replica.h"
#include "lockstep/optim/loss_scale.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

// All that changes from step to step besides the rows of nn::States: what a checkpoint stores.
struct TrainState {
  std::int64_t steps = 0;                      // begun, skipped ones included
  std::int64_t updates = 0;                    // of the parameters
  std::optional<optim::LossScale> loss_scale;  // in f16
};

struct StepMetrics {
  std::int64_t step = 0;     // 1 is the first
  double loss = 0;           // the mean over all targets
  double gradient_norm = 0;  // before clipping, without the loss scale
  double rate = 0;           // the learning rate
  double loss_scale = 1;     // of this step
  bool skipped = false;
  std::int64_t tokens = 0;
  double seconds = 0;

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

class Trainer {
 public:
  // Plans, checks the limit, takes the memory, and sets the initial parameters. `ops` outlives it.
  Trainer(const TrainOptions& options, Ops& ops);

  // The micro-batches of a step, of the planned shape, any number of them. Throws
  // Error(kInvalidArgument) where none has a target.
  StepMetrics step(std::span<const nn::Batch> micro_batches);

  nn::Replica& replica() { return replica_; }
  const TrainOptions& options() const { return options_; }
  const TrainState& state() const { return state_; }
  // Of a run in any precision: where only one of the two scales its loss, this one begins with the
  // scale that it would begin with.
  void set_state(const TrainState& state);

 private:
  double accumulate(std::span<const nn::Batch> micro_batches, std::int64_t targets);
  double gradient_norm();
  void update(double rate, double gradient_scale);
  // 1 where the loss is not scaled.
  double loss_scale() const { return state_.loss_scale ? state_.loss_scale->scale : 1; }

  TrainOptions options_;
  Ops& ops_;
  nn::Replica replica_;
  TrainState state_;
};

}  // namespace lockstep::train
