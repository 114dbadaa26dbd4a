// Who holds memory on a GPU, as the driver's management library (NVML) knows it.
#pragma once

#include <vector>

#include "lockstep/tensor/cuda.h"

namespace lockstep::cuda {

// Without this process, most bytes first. Empty where the library is not there or does not answer:
// it is not needed for anything else.
std::vector<GpuUser> memory_users(int index);

}  // namespace lockstep::cuda
