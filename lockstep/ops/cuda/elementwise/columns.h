// Columns of rows to columns of others, on a GPU.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::CopyColumns& call);

}  // namespace lockstep::cuda
