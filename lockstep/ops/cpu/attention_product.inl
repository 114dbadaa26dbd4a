// Products of matrices that lie in scratch memory: c[m][n] = start + the sum over k of a(k, m)
// b[k][n]. Part of attention's kernels.
//
// kPatchRows rows of c times kPatchVectors vectors are summed up in registers: enough of them to
// keep the multipliers busy, few enough to leave room for a and b.
#pragma once

#include "lockstep/ops/cpu/attention_kernels.h"
#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

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

#define LOCKSTEP_UNROLL _Pragma("GCC unroll 16")

// One step of k, or on ARM, where a product takes any lane of a register as its factor, kLanes.
template <Left kLeft, std::size_t kWide>
[[gnu::always_inline]] inline void add_products(Floats (&sum)[kPatchRows][kWide], const Matrix& a,
                                                const Matrix& b, std::size_t m, std::size_t n,
                                                std::size_t k) {
#if defined(__ARM_NEON)
  constexpr std::size_t kSteps = kLeft == Left::kRows ? kLanes : 1;
  constexpr std::size_t kLoads = kLeft == Left::kRows ? kPatchRows : kPatchRows / kLanes;
  Floats left[kLoads];
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kLoads; ++i) {
    left[i] = load(kLeft == Left::kRows ? a.row(m + i) + k : a.row(k) + m + i * kLanes);
  }
  LOCKSTEP_UNROLL for (std::size_t step = 0; step < kSteps; ++step) {
    Floats right[kWide];
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
      right[v] = load(b.row(k + step) + n + v * kLanes);
    }
    LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
      const float factor = kLeft == Left::kRows ? left[i][step] : left[i / kLanes][i % kLanes];
      LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) sum[i][v] += right[v] * splat(factor);
    }
  }
#else
  Floats right[kWide];
  LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
    right[v] = load(b.row(k) + n + v * kLanes);
  }
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
    const Floats factor = splat(kLeft == Left::kRows ? a.row(m + i)[k] : a.row(k)[m + i]);
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) sum[i][v] += right[v] * factor;
  }
#endif
}

template <Left kLeft, Start kStart, std::size_t kWide>
[[gnu::always_inline]] inline void multiply_patch(const Matrix& a, const Matrix& b, const Matrix& c,
                                                  std::size_t m, std::size_t n, Span k,
                                                  const float* factors) {
  Floats sum[kPatchRows][kWide];
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
      sum[i][v] = kStart == Start::kZero ? Floats{} : load(c.row(m + i) + n + v * kLanes);
      if (kStart == Start::kRescaled) sum[i][v] *= splat(factors[m + i]);
    }
  }
#if defined(__ARM_NEON)
  constexpr std::size_t kSteps = kLeft == Left::kRows ? kLanes : 1;
#else
  constexpr std::size_t kSteps = 1;
#endif
  for (std::size_t at = k.begin; at < k.end; at += kSteps) {
    add_products<kLeft, kWide>(sum, a, b, m, n, at);
  }
  LOCKSTEP_UNROLL for (std::size_t i = 0; i < kPatchRows; ++i) {
    LOCKSTEP_UNROLL for (std::size_t v = 0; v < kWide; ++v) {
      store(c.row(m + i) + n + v * kLanes, sum[i][v]);
    }
  }
}

// Rows m to m + kPatchRows of c, columns of `n`. The ends of n, and with Left::kRows those of k,
// are multiples of kLanes.
template <Left kLeft, Start kStart>
void multiply_rows(const Matrix& a, const Matrix& b, const Matrix& c, std::size_t m, Span n, Span k,
                   const float* factors = nullptr) {
  std::size_t at = n.begin;
  for (; at + kPatchVectors * kLanes <= n.end; at += kPatchVectors * kLanes) {
    multiply_patch<kLeft, kStart, kPatchVectors>(a, b, c, m, at, k, factors);
  }
  for (; at < n.end; at += kLanes) multiply_patch<kLeft, kStart, 1>(a, b, c, m, at, k, factors);
}

#undef LOCKSTEP_UNROLL

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
