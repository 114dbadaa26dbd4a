// Where a number that is none came from.
#pragma once

#include <span>
#include <string>

#include "lockstep/nn/replica.h"

namespace lockstep::train {

// Runs the micro-batches again and looks behind every block: at its parameters, at what it hands
// on, then at the gradients that it gives. Says in words which is the first that is infinite or no
// number: "block layer.3 hands on infinities or NaN"; nothing where none is. Gradients are lost.
std::string first_nonfinite(nn::Replica& replica, std::span<const nn::Batch> micro_batches,
                            const nn::MicroBatch& first);

}  // namespace lockstep::train
