// The choice of tokens on a GPU: what ops::Sampler chooses, without the logits leaving the device.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Sample& call);

}  // namespace lockstep::cuda
