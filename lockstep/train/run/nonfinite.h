// Finds the source of NaN and infinities.
#pragma once

#include <span>
#include <string>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Runs the micro-batches again and checks every block: its parameters, its output, then its
// gradients. Describes the first non-finite one: "block layer.3 hands on infinities or NaN"; empty
// if there is none. Overwrites gradients.
//
// With sharded parameters or gradients, all workers run a micro-batch at the same time, or stand in
// for one, until one of the `group` has found something.
std::string first_nonfinite(nn::Replica& replica, parallel::Strategy& strategy, RunGroup& group,
                            std::span<const nn::Batch> micro_batches, const nn::MicroBatch& first);

}  // namespace lockstep::train
