#include "lockstep/tensor/cuda/check.h"

#include "lockstep/base/error.h"

namespace lockstep::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears it, so that it is not reported twice
  fail(ErrorCode::kSystem, "{} failed: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  fail(ErrorCode::kSystem, "the kernel {} could not be started: {} ({})", kernel,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace lockstep::cuda
