// Finds the source of NaN and infinities.
#pragma once

#include <span>
#include <string>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct Nonfinite {
  std::string text;  // "block layer.3 hands on infinities or NaN"; empty: there is none
  // The smallest of several ranks is the source: what a pipeline stage finds in backward may come
  // from the forward of a later one.
  double order = 0;
};

// Runs the micro-batches again and checks every block: its parameters, its output, then its
// gradients. Returns the first non-finite one. Overwrites gradients.
//
// With sharded parameters or gradients, all workers run a micro-batch at the same time, or stand in
// for one, until one of the `group` has found something.
Nonfinite first_nonfinite(nn::Replica& replica, parallel::Strategy& strategy, RunGroup& group,
                          std::span<const nn::Batch> micro_batches, const nn::MicroBatch& first);

}  // namespace lockstep::train
