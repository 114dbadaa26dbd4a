// The product of two strips in registers (gemm/kernels.h). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// One step of depth: tile[i][j] += a[i] * b[j], b in vectors.
template <std::size_t rows, std::size_t vectors>
inline void multiply_step(const float* a, const float* b, Floats (&tile)[rows][vectors]) {
  Floats right[vectors];
#pragma GCC unroll 4
  for (std::size_t j = 0; j < vectors; ++j) right[j] = load(b + j * kLanes);
#if defined(__ARM_NEON)
  // A product by one lane of a vector: four rows of a cost one load.
  static_assert(rows % 4 == 0);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < rows; i += 4) {
    const Floats left = load(a + i);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < vectors; ++j) {
      tile[i][j] = vfmaq_laneq_f32(tile[i][j], right[j], left, 0);
      tile[i + 1][j] = vfmaq_laneq_f32(tile[i + 1][j], right[j], left, 1);
      tile[i + 2][j] = vfmaq_laneq_f32(tile[i + 2][j], right[j], left, 2);
      tile[i + 3][j] = vfmaq_laneq_f32(tile[i + 3][j], right[j], left, 3);
    }
  }
#else
#pragma GCC unroll 16
  for (std::size_t i = 0; i < rows; ++i) {
    const Floats left = splat(a[i]);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < vectors; ++j) tile[i][j] += left * right[j];
  }
#endif
}

template <std::size_t rows, std::size_t vectors>
void multiply(std::size_t depth, const float* a, const float* b, float* to, bool add) {
  constexpr std::size_t kColumns = vectors * kLanes;
  // How many steps ahead b is fetched: it comes from the second cache, a stays in the first.
  constexpr std::size_t kAhead = 16;
  Floats tile[rows][vectors] = {};
  for (std::size_t p = 0; p < depth; ++p, a += rows, b += kColumns) {
    __builtin_prefetch(b + kAhead * kColumns);
    multiply_step<rows, vectors>(a, b, tile);
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < vectors; ++j) {
      float* at = to + i * kColumns + j * kLanes;
      store(at, add ? tile[i][j] + load(at) : tile[i][j]);
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
