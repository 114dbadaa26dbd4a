// Products of matrices that lie in scratch memory: c[m][n] = start + the sum over k of a(k, m)
// b[k][n]. Part of attention's kernels.
//
// kPatchRows rows of c times kPatchVectors vectors accumulate in registers: enough to keep the
// multipliers busy, few enough to leave registers for a and b.
#pragma once

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/attention/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

#if defined(__ARM_NEON) || defined(__AVX512F__)
constexpr std::size_t kPatchRows = 8;
#else
constexpr std::size_t kPatchRows = 4;
#endif
constexpr std::size_t kPatchVectors = 2;
static_assert(kAttentionPadding % kLanes == 0 && kAttentionPadding % kPatchRows == 0);

struct Matrix {
  float* data = nullptr;
  std::size_t stride = 0;
  float* row(std::size_t index) const { return data + index * stride; }
};

// How a(k, m) lies in memory.
enum class Left {
  kRows,     // a[m][k]
  kColumns,  // a[k][m]
};

// What a sum starts from.
enum class Start {
  kZero,
  kFormer,   // c as it is
  kRescaled  // c[m][n] * factors[m]
};

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Steps of k at a time: on ARM a product takes any lane of a register as its factor, so that a
// vector of a's row lasts for as many steps as it has lanes.
template <Left kLeft>
constexpr std::size_t steps_at_once() {
#if defined(__ARM_NEON)
  return kLeft == Left::kRows ? kLanes : 1;
#else
  return 1;
#endif
}

#define LOCKSTEP_UNROLL _Pragma("GCC unroll 16")

// Adds the products of steps_at_once() steps, whose first elements a and b point to.
template <Left kLeft, std::size_t kWide>
[[gnu::always_inline]] inline void add_products(Floats (&sum)[kPatchRows][kWide], const float* a,
                                                std::size_t a_stride, const float* b,
                                                std::size_t b_stride) {
  constexpr std::size_t kSteps = steps_at_once<kLeft>();
#if defined(__ARM_NEON)
  constexpr std::size_t kLoads = kLeft == Left::kRows ? kPatchRows : kPatchRows / kLanes;
  Floats left[kLoads];
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kLoads; ++i) {
    left[i] = load(a + i * (kLeft == Left::kRows ? a_stride : kLanes));
  }
#endif
  LOCKSTEP_UNROLL for (std::size_t step = 0; step < kSteps; ++step) {
    Floats right[kWide];
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
      right[v] = load(b + step * b_stride + v * kLanes);
    }
    LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
#if defined(__ARM_NEON)
      const float factor = kLeft == Left::kRows ? left[i][step] : left[i / kLanes][i % kLanes];
#else
      const float factor = a[kLeft == Left::kRows ? i * a_stride : i];
#endif
      LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) sum[i][v] += right[v] * splat(factor);
    }
  }
}

// kPatchRows rows of c and kWide vectors; a, b and c point to the first elements.
template <Left kLeft, Start kStart, std::size_t kWide>
[[gnu::always_inline]] inline void multiply_patch(const float* a, std::size_t a_stride,
                                                  const float* b, std::size_t b_stride, float* c,
                                                  std::size_t c_stride, std::size_t depth,
                                                  const float* factors) {
  Floats sum[kPatchRows][kWide];
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
      sum[i][v] = kStart == Start::kZero ? Floats{} : load(c + i * c_stride + v * kLanes);
      if (kStart == Start::kRescaled) sum[i][v] *= splat(factors[i]);
    }
  }
  constexpr std::size_t kSteps = steps_at_once<kLeft>();
  for (std::size_t k = 0; k < depth; k += kSteps) {
    add_products<kLeft, kWide>(sum, a, a_stride, b, b_stride);
    a += kSteps * (kLeft == Left::kRows ? 1 : a_stride);
    b += kSteps * b_stride;
  }
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
      store(c + i * c_stride + v * kLanes, sum[i][v]);
    }
  }
}

// Rows m to m + kPatchRows of c, columns of `n`. The ends of n, and with Left::kRows those of k,
// are multiples of kLanes.
template <Left kLeft, Start kStart>
void multiply_rows(Matrix a, Matrix b, Matrix c, std::size_t m, Span n, Span k,
                   const float* factors = nullptr) {
  const float* left = kLeft == Left::kRows ? a.row(m) + k.begin : a.row(k.begin) + m;
  const float* right = b.row(k.begin);
  float* to = c.row(m);
  const float* row_factors = factors == nullptr ? nullptr : factors + m;
  const std::size_t depth = k.begin < k.end ? k.end - k.begin : 0;
  std::size_t at = n.begin;
  for (; at + kPatchVectors * kLanes <= n.end; at += kPatchVectors * kLanes) {
    multiply_patch<kLeft, kStart, kPatchVectors>(left, a.stride, right + at, b.stride, to + at,
                                                 c.stride, depth, row_factors);
  }
  for (; at < n.end; at += kLanes) {
    multiply_patch<kLeft, kStart, 1>(left, a.stride, right + at, b.stride, to + at, c.stride, depth,
                                     row_factors);
  }
}

#undef LOCKSTEP_UNROLL

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
