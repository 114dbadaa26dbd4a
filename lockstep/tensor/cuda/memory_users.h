// The processes that hold memory on a GPU, as reported by the driver's management library (NVML).
#pragma once

#include <vector>

#include "lockstep/tensor/cuda.h"

namespace lockstep::cuda {

// Without this process, most bytes first. Empty if the library is missing or fails; nothing else
// needs it.
std::vector<GpuUser> memory_users(int index);

}  // namespace lockstep::cuda
