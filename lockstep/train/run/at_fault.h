// The error of a run whose loss or gradient is not finite: with the block that caused it, the last
// good checkpoint and how to return to it, and what may help.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// All must outlive the call; no save may be running.
struct RunAtFault {
  nn::Replica& replica;
  parallel::Strategy& strategy;
  RunGroup group;
  const CheckpointFolder& checkpoints;
  const TrainOptions& options;
};

// All workers call these, each with its micro-batches; where they do not wait for each other the
// one that has found it. Both throw Error(kNonFinite).
//
// Fails because of a step. `first_sequence` is the index of this worker's first sequence in the
// step.
[[noreturn]] void fail_step(RunAtFault run, const StepMetrics& metrics,
                            std::span<const nn::Batch> micro_batches, std::uint64_t first_sequence);
// Fails because of a validation after `step`; `micro_batches` are some of its micro-batches.
[[noreturn]] void fail_validation(RunAtFault run, std::int64_t step, double loss,
                                  std::span<const nn::Batch> micro_batches);

}  // namespace lockstep::train
