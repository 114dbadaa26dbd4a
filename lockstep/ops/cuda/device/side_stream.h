// A second stream for work that an operation does beside its main part: a pass over memory while
// the tensor cores multiply, say. Both parts belong to one operation: what is queued later on the
// main stream begins after both.
//
//   const Context beside = side.begin(context);   // after all that the main stream has
//   launch on beside.stream, then on context.stream
//   side.end(context);
//
// The two use different parts of the workspace. Works while the main stream is captured.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

class SideStream {
 public:
  explicit SideStream(int device);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // The context with the side stream in place of its own.
  Context begin(const Context& context);
  void end(const Context& context);

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begins_ = nullptr;
  cudaEvent_t ends_ = nullptr;
};

}  // namespace lockstep::cuda
