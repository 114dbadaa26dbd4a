// The product of two strips in registers (gemm/kernels.h). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/gemm/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

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

inline void fetch_row_of_outputs(const gemm::Ahead& ahead, std::size_t row) {
  constexpr std::size_t kLine = 64;  // of the cache
  for (std::size_t i = 0; i < ahead.output_count; ++i) {
    const std::byte* first = ahead.outputs[i] + row * ahead.row_stride;
    for (std::size_t at = 0; at < ahead.row_bytes; at += kLine) __builtin_prefetch(first + at, 1);
    __builtin_prefetch(first + ahead.row_bytes - 1, 1);
  }
}

// end(tile) with the product of two strips, of a tile whose rows have `vectors` vectors the first
// `used`.
template <std::size_t rows, std::size_t vectors, std::size_t used, class End>
[[gnu::always_inline]] inline void multiply_strips(std::size_t depth, const float* a,
                                                   const float* b, const gemm::Ahead& ahead,
                                                   End&& end) {
  constexpr std::size_t kColumns = vectors * kLanes;
  // How many steps ahead b is fetched: it comes from the second cache, a stays in the first.
  constexpr std::size_t kAhead = 16;
  constexpr std::size_t kLine = 16;  // of the cache
  const std::byte* strip = ahead.strip;
  Floats tile[rows][used] = {};
  const auto steps = [&](std::size_t count) __attribute__((always_inline)) {
    for (; count > 0; --count, a += rows, b += kColumns, strip += ahead.strip_step) {
#pragma GCC unroll 4
      for (std::size_t j = 0; j < kColumns; j += kLine) {
        __builtin_prefetch(b + kAhead * kColumns + j);
      }
      __builtin_prefetch(strip, 0, 2);
      multiply_step<rows, used>(a, b, tile);
    }
  };
  // A row of the outputs now and then: all at once would hold up the strips.
  const std::size_t some = ahead.rows > 0 ? depth / ahead.rows : 0;
  for (std::size_t row = 0; row < ahead.rows; ++row) {
    fetch_row_of_outputs(ahead, row);
    steps(some);
  }
  steps(depth - some * ahead.rows);
  end(tile);
}

// Behind the vectors that are used `to` has zeros.
template <std::size_t rows, std::size_t vectors, std::size_t used>
void multiply(std::size_t depth, const float* a, const float* b, float* to, bool add,
              const gemm::Ahead& ahead) {
  multiply_strips<rows, vectors, used>(depth, a, b, ahead, [&](const auto& tile) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
      for (std::size_t j = 0; j < used; ++j) {
        float* at = to + (i * vectors + j) * kLanes;
        store(at, add ? tile[i][j] + load(at) : tile[i][j]);
      }
      for (std::size_t j = used; j < vectors; ++j) store(to + (i * vectors + j) * kLanes, splat(0));
    }
  });
}

// tile[i][j] = f(tile[i][j], i, j) for all vectors.
template <std::size_t rows, std::size_t vectors, class F>
[[gnu::always_inline]] inline void for_tile(Floats (&tile)[rows][vectors], F&& f) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < vectors; ++j) tile[i][j] = f(tile[i][j], i, j);
  }
}

// A whole tile of floats without activation (finish.inl), from registers to where it belongs.
template <std::size_t rows, std::size_t vectors>
void multiply_and_finish(std::size_t depth, const float* a, const float* b,
                         const gemm::Product& product, const gemm::Place& place,
                         const gemm::Ahead& ahead) {
  multiply_strips<rows, vectors, vectors>(depth, a, b, ahead, [&](auto& tile) {
    const gemm::Finish& with = product.finish;
    const std::size_t stride = product.shape.n;
    const std::size_t first = place.row * stride + place.column;
    const auto at = [&](const std::byte* matrix, std::size_t i, std::size_t j) {
      return reinterpret_cast<const float*>(matrix) + first + i * stride + j * kLanes;
    };
    if (with.bias != nullptr) {
      const float* bias = reinterpret_cast<const float*>(with.bias) + place.column;
      for_tile(tile,
               [&](Floats x, std::size_t, std::size_t j) { return x + load(bias + j * kLanes); });
    }
    if (with.added != nullptr) {
      for_tile(tile, [&](Floats x, std::size_t i, std::size_t j) {
        return x + load(at(with.added, i, j));
      });
    }
    if (with.factor != nullptr) {
      for_tile(tile, [&](Floats x, std::size_t i, std::size_t j) {
        return x * load(at(with.factor, i, j));
      });
    }
    float* to = reinterpret_cast<float*>(product.output) + first;
    for_tile(tile, [&](Floats x, std::size_t i, std::size_t j) {
      store(to + i * stride + j * kLanes, x);
      return x;
    });
  });
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
