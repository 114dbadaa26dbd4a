// The operations that liblockstep_cuda.so exports; tensor/cuda_module.h has the rest of its
// interface.
#pragma once

#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

// extern "C" in the module. The result belongs to the caller; it throws Error.
inline constexpr char kOpsSymbol[] = "lockstep_cuda_ops";
using OpsFunction = Ops*(int index);

}  // namespace lockstep::cuda
