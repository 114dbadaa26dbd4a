// Where a number that is none came from.
#pragma once

#include <span>
#include <string>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Runs the micro-batches again and looks behind every block: at its parameters, at what it hands
// on, then at the gradients that it gives. Says in words which is the first that is infinite or no
// number: "block layer.3 hands on infinities or NaN"; nothing where none is. Gradients are lost.
//
// Where the workers of `strategy` shard parameters or gradients, all of them do a micro-batch
// at the same time, or stand in for one, until one of the `group` has found something.
std::string first_nonfinite(nn::Replica& replica, parallel::Strategy& strategy, RunGroup& group,
                            std::span<const nn::Batch> micro_batches, const nn::MicroBatch& first);

}  // namespace lockstep::train
