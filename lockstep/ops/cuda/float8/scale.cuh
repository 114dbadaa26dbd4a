// Chooses a scale by the rule of base/math/float8.h.
#pragma once

#include <cuda_runtime.h>

#include "lockstep/ops/float8.h"

namespace lockstep::cuda {

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// Keeps the scale if `amax` is zero or not finite.
__device__ __forceinline__ void set_scale(float* scaling, float amax) {
  if (!is_finite(amax) || amax == 0.0f) return;
  const float ratio = fminf(__fdiv_rn(scaling[ops::kLargest], amax), 0x1p100f);
  const float scale = __uint_as_float(__float_as_uint(ratio) & 0x7f800000u);
  scaling[ops::kScale] = scale;
  scaling[ops::kInverse] = __fdiv_rn(1.0f, scale);
}

}  // namespace lockstep::cuda
