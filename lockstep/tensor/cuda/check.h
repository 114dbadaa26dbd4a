// Errors of the CUDA runtime as lockstep::Error. Includes no fmt, so that kernels may use it.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::cuda {

// Throws Error(kSystem) with `what`, like "copy to the GPU", and CUDA's message.
void check(cudaError_t status, const char* what);
// After a launch: throws where the kernel of that name could not be started.
void check_launch(const char* kernel);

}  // namespace lockstep::cuda
