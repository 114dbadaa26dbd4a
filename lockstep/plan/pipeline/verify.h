// Runs a step schedule on symbols and proves that it is one step.
//
// Stages run their actions strictly in order, one at a time. A send waits until its peer receives,
// and a receive until its peer sends (rendezvous, nothing is buffered). A schedule that ends this
// way ends with every weaker rule, too: with buffers, or with messages beside compute.
//
// What is proven, else Error(kInvalidArgument) names stage, action and reason:
//   - every forward, input gradient and weight gradient of every virtual stage, micro-batch and
//     slice is computed exactly once, on its stage, after everything that it reads
//   - what comes from another stage was received before, and every message carries what its
//     receiver expects, once
//   - no order of events deadlocks: with rendezvous, if one order of a fixed list per stage ends,
//     all do
//   - every update comes after all gradients of the weights of its batch and before those of the
//     next, once per batch, in order
//   - a micro-batch uses one version of the weights on all stages, forward and backward, and this
//     version is one of the newest StepSchedule::weight_versions of the stage
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

// What a verified schedule takes.
struct StepCounts {
  std::int64_t activation_messages = 0;
  std::int64_t gradient_messages = 0;
  // For every stage the most activations that it holds at once, from forward to the last part of
  // backward. The unit is one chunk and slice of one micro-batch.
  std::vector<int> stash;
  // The part of these whose input gradient is computed and whose weight gradient is not, at most.
  std::vector<int> awaiting_weight;
  // Updates that the oldest weights in use have missed: 0 is synchronous training.
  int staleness = 0;

  std::int64_t messages() const { return activation_messages + gradient_messages; }
};

StepCounts verify(const StepSchedule& schedule);

}  // namespace lockstep::plan
