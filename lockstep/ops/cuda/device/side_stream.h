// A second stream for work that an operation runs beside its main part, for example a pass over
// memory while the tensor cores multiply. Both parts belong to one operation: later work on the
// main stream begins after both.
//
//   const Context beside = side.begin(context);   // after all work on the main stream
//   launch on beside.stream, then on context.stream
//   side.end(context);
//
// The two parts use different ranges of the workspace. The main stream may be captured.
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

  // The context with the side stream instead of the main stream.
  Context begin(const Context& context);
  void end(const Context& context);

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begins_ = nullptr;
  cudaEvent_t ends_ = nullptr;
};

}  // namespace lockstep::cuda
