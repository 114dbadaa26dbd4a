// Soft caps in kernels: c = cap tanh(x / cap).
#pragma once

#include <cuda_runtime.h>

namespace lockstep::cuda {

__device__ __forceinline__ float soft_cap(float x, float cap) { return cap * tanhf(x / cap); }

// The derivative of c by x, 1 - (c / cap)^2; as a product, so that it stays exact where c is near
// the cap. 0 for a hidden score, which is -infinity.
__device__ __forceinline__ float soft_cap_slope(float c, float cap) {
  const float finite = fmaxf(c, -cap);
  return (cap - finite) * (cap + finite) / (cap * cap);
}

}  // namespace lockstep::cuda
