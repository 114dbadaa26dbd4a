// Sets tensors of a GPU to zeros, in the order of the context's stream.
#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

// Absent tensors are passed over.
inline void clear(const Context& context, std::initializer_list<Tensor> tensors) {
  for (const Tensor& one : tensors) {
    if (one.bytes() == 0) continue;
    check(cudaMemsetAsync(one.data(), 0, one.bytes(), context.stream), "clearing a tensor");
  }
}

}  // namespace lockstep::cuda
