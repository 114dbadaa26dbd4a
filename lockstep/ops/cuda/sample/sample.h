// Chooses tokens on a GPU: the same tokens as ops::Sampler, without copying logits to the host.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Sample& call);

}  // namespace lockstep::cuda
