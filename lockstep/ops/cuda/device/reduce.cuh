// Sums and maxima over the threads of a warp or of a block; every thread gets the result.
//
// Lanes exchange values in a butterfly, so the order of additions depends only on the number of
// lanes. Warps exchange their sums through shared memory and sum them in the same way.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

template <int kLanes = 32, class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

// All threads of the block call these; their number is a multiple of 32. `partials` is shared
// memory for one T per warp. They begin with a barrier, so `partials` can be reused at once.
template <class T>
__device__ __forceinline__ T block_sum(T x, T* partials) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) partials[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? partials[lane] : T{});
}

__device__ __forceinline__ float block_max(float x, float* partials) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  x = warp_max(x);
  __syncthreads();
  if (lane == 0) partials[warp] = x;
  __syncthreads();
  return warp_max(partials[lane < warps ? lane : 0]);
}

}  // namespace lockstep::cuda
