// Tiles (tiles.h) in plain loops. Part of a file of kernels (vector.inl).
#pragma once

#include <algorithm>

#include "lockstep/base/math/half.h"
#include "lockstep/ops/cpu/gemm/tiles/tiles.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

struct TileUnit {
  static void begin() {}
  static void end() {}
  static void clear() { std::fill_n(sums, kLines * kLines, 0.0f); }
  static void load(const float* square, std::size_t stride) {
    for (std::size_t i = 0; i < kLines; ++i) {
      std::copy_n(square + i * stride, kLines, sums + i * kLines);
    }
  }
  static void store(float* square, std::size_t stride) {
    for (std::size_t i = 0; i < kLines; ++i) {
      std::copy_n(sums + i * kLines, kLines, square + i * stride);
    }
  }
  template <class AfterStep>
  static void multiply(std::size_t steps, const BFloat16* rows, const BFloat16* columns,
                       AfterStep&& after_step) {
    constexpr std::size_t kTile = 2 * kSide * kSide;
    constexpr std::size_t kDown = kSide * kLines;
    for (std::size_t step = 0; step < steps; ++step, rows += 2 * kTile, columns += 2 * kTile) {
      multiply_tiles(rows, columns, sums);
      multiply_tiles(rows, columns + kTile, sums + kSide);
      multiply_tiles(rows + kTile, columns, sums + kDown);
      multiply_tiles(rows + kTile, columns + kTile, sums + kDown + kSide);
      after_step(step);
    }
  }

 private:
  static constexpr std::size_t kSide = 16;
  static constexpr std::size_t kLines = gemm::TileKernels::kLines;
  static inline thread_local float sums[kLines * kLines];

  // As the instruction does it: the products of even and of odd elements are summed up apart over
  // the 16 pairs, then added to each other, then to the sum so far.
  static void multiply_tiles(const BFloat16* a, const BFloat16* b, float* to) {
    for (std::size_t i = 0; i < kSide; ++i) {
      for (std::size_t j = 0; j < kSide; ++j) {
        float even = 0;
        float odd = 0;
        for (std::size_t p = 0; p < kSide; ++p) {
          const BFloat16* left = a + (i * kSide + p) * 2;
          const BFloat16* right = b + (p * kSide + j) * 2;
          even += to_float(left[0]) * to_float(right[0]);
          odd += to_float(left[1]) * to_float(right[1]);
        }
        to[i * kLines + j] += even + odd;
      }
    }
  }
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
