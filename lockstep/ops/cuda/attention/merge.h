// Joins attention to more keys to that to the keys before, on a GPU.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::MergeAttention& call);

}  // namespace lockstep::cuda
