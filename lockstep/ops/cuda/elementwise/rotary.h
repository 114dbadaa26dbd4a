// Rotary embedding on a GPU, in place.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Rotary& call);

}  // namespace lockstep::cuda
