// How the kernels of compression share out elements, and how they are loaded.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

inline constexpr int kCodecThreads = 256;
// Some for each multiprocessor of a large GPU. Where ranks share it, their collectives still find
// room: blocks of these kernels end by themselves.
inline constexpr std::size_t kCodecMostBlocks = 1024;

inline unsigned codec_blocks(std::size_t count) {
  const std::size_t blocks = (count + kCodecThreads - 1) / kCodecThreads;
  return static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, kCodecMostBlocks));
}

__device__ __forceinline__ std::size_t codec_first() {
  return std::size_t{blockIdx.x} * kCodecThreads + threadIdx.x;
}
__device__ __forceinline__ std::size_t codec_stride() {
  return std::size_t{gridDim.x} * kCodecThreads;
}

template <class Kernel>
void load_codec_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "loading a kernel of compression");
}

// f(T()) for the C++ type of elements.
template <class F>
void with_codec_type(DType dtype, F&& f) {
  if (dtype == DType::kBF16) return f(BFloat16());
  if (dtype == DType::kF16) return f(Half());
  return f(float());
}

}  // namespace lockstep::cuda
