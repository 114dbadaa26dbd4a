// Losses on a GPU, each with its gradient in the same pass.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// A target outside the classes is recorded in context.faults, and its row counts as one without a
// target.
void run(const Context& context, const ops::CrossEntropy& call);
void run(const Context& context, const ops::SquaredError& call);

}  // namespace lockstep::cuda
