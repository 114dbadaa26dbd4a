// SwiGLU on a GPU, forward and backward: one pass over memory.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::SwiGlu& call);
void run(const Context& context, const ops::SwiGluBackward& call);

}  // namespace lockstep::cuda
