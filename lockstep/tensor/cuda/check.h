// Errors of the CUDA runtime as lockstep::Error. Includes no fmt, so that kernels may use it.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::cuda {

// Throws Error(kSystem) with `what`, like "copy to the GPU", and CUDA's message.
void check(cudaError_t status, const char* what);
// After a launch: throws where the kernel of that name could not be started.
void check_launch(const char* kernel);

// After waiting: like check(), with the last operation that this thread has queued. Kernels report
// an error when they run, so it is that one or one before it.
void check_operations(cudaError_t status);
void note_operation(const char* what);  // literals; check_launch() notes its kernel

}  // namespace lockstep::cuda
