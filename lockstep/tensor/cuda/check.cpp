#include "lockstep/tensor/cuda/check.h"

#include <fmt/format.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears it, so that it is not reported twice
  fail(ErrorCode::kSystem, "{} failed: {} ({})", what, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

namespace {

thread_local const char* last_operation = nullptr;

}  // namespace

void note_operation(const char* what) { last_operation = what; }

void check_operations(cudaError_t status) {
  if (status == cudaSuccess) return;
  const std::string last = last_operation == nullptr
                               ? ""
                               : fmt::format(", queued before or with \"{}\",", last_operation);
  check(status, ("an operation on the GPU" + last).c_str());
}

void check_launch(const char* kernel) {
  note_operation(kernel);
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  fail(ErrorCode::kSystem, "the kernel {} could not be started: {} ({})", kernel,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace lockstep::cuda
