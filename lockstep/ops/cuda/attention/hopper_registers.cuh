// Rounds the result of a product in registers to 16 bits, into fragments of the next product or
// into tiles in shared memory. hopper_wgmma.cuh says which thread holds which elements.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/hopper_ptx.cuh"

namespace lockstep::cuda::hopper {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class T, int kCount>
__device__ __forceinline__ void round_to(std::uint32_t (&fragments)[kCount / 2],
                                         const float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) fragments[i] = pack<T>(values[2 * i], values[2 * i + 1]);
}

// The address at which store_matrices() of a thread writes the 16 columns from 16 k on. The next 64
// columns of a wider operand are next_columns bytes after a tile.
__device__ __forceinline__ std::uint32_t place_in_tile(std::uint32_t tile, int next_columns,
                                                       int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane % 16;
  const int chunk = k % 4 * 2 + lane / 16;
  return tile + k / 4 * next_columns + row * 128 + ((chunk ^ (row % 8)) << 4);
}

// 64 rows of fragments into tiles.
template <int kCount>
__device__ __forceinline__ void store_fragments(std::uint32_t tile, int next_columns,
                                                const std::uint32_t (&fragments)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount / 4; ++k) {
    store_matrices(place_in_tile(tile, next_columns, k), fragments[4 * k], fragments[4 * k + 1],
                   fragments[4 * k + 2], fragments[4 * k + 3]);
  }
}

// 64 rows of values, times a factor for each of the thread's two rows, into tiles.
template <class T, int kCount>
__device__ __forceinline__ void store_rows(std::uint32_t tile, int next_columns,
                                           const float (&values)[kCount],
                                           const float (&factors)[2]) {
#pragma unroll
  for (int k = 0; k < kCount / 8; ++k) {
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float factor = factors[i % 2];
      packed[i] = pack<T>(values[8 * k + 2 * i] * factor, values[8 * k + 2 * i + 1] * factor);
    }
    store_matrices(place_in_tile(tile, next_columns, k), packed[0], packed[1], packed[2],
                   packed[3]);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace lockstep::cuda::hopper
