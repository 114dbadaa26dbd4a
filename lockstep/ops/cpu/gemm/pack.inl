// Packing of strips (gemm/kernels.h). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/gemm/kernels.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

inline float widened(float x) { return x; }
inline float widened(BFloat16 x) { return to_float(x); }
inline float widened(Half x) { return to_float(x); }

// The lanes of two vectors in turn: a0 b0 a1 b1 ..., from their lower or upper halves.
template <std::size_t first>
inline Floats interleaved(Floats a, Floats b) {
  Ints order;
  for (std::size_t i = 0; i < kLanes; ++i) {
    order[i] = static_cast<std::int32_t>(first + i / 2 + (i % 2) * kLanes);
  }
  return __builtin_shuffle(a, b, order);
}

// Interleaving the first half of the vectors with the second, log2(kLanes) times, turns rows into
// columns.
inline void transpose(Floats (&x)[kLanes]) {
#pragma GCC unroll 4
  for (std::size_t step = 1; step < kLanes; step *= 2) {
    Floats y[kLanes];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kLanes / 2; ++i) {
      y[2 * i] = interleaved<0>(x[i], x[i + kLanes / 2]);
      y[2 * i + 1] = interleaved<kLanes / 2>(x[i], x[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) x[i] = y[i];
  }
}

// A strip with fewer lines than its width.
template <std::size_t width, class T>
void pack_edge(const T* from, const gemm::Lines& lines, std::size_t count, float* strip) {
  for (std::size_t p = 0; p < lines.depth; ++p, strip += width) {
    for (std::size_t i = 0; i < width; ++i) {
      strip[i] = i < count ? widened(from[i * lines.line_stride + p * lines.depth_stride]) : 0.0f;
    }
  }
}

// One step of a strip; nothing is written behind it.
template <std::size_t width, class T>
inline void pack_step(const T* from, float* to) {
  constexpr std::size_t kWhole = width / kLanes * kLanes;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kWhole; i += kLanes) store(to + i, load(from + i));
  if constexpr (kWhole < width) {
    store_part(to + kWhole, load_part(from + kWhole, width - kWhole), width - kWhole);
  }
}

// Strips whose lines lie side by side: every step of depth is a copy. Some steps are made of all
// strips before the next ones, for what lies behind a strip in memory belongs to the next strip.
template <std::size_t width, class T>
void pack_side_by_side(const T* from, const gemm::Lines& lines, std::size_t strips, float* to) {
  constexpr std::size_t kSteps = 4;
  const std::size_t stride = lines.depth_stride;
  std::size_t p = 0;
  for (; p + kSteps <= lines.depth; p += kSteps) {
    const T* at = from + p * stride;
    float* step = to + p * width;
    for (std::size_t strip = 0; strip < strips; ++strip, at += width, step += lines.depth * width) {
      // Steps may lie pages apart, too far for the CPU to see what comes.
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kSteps; ++i) __builtin_prefetch(at + (kSteps + i) * stride);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kSteps; ++i) {
        pack_step<width>(at + i * stride, step + i * width);
      }
    }
  }
  for (; p < lines.depth; ++p) {
    for (std::size_t strip = 0; strip < strips; ++strip) {
      pack_step<width>(from + p * stride + strip * width, to + (strip * lines.depth + p) * width);
    }
  }
}

// Lines one after the other: squares of them are transposed. Where the width is no multiple of
// kLanes, the lanes that are too many are overwritten by the next step, and the last step has none.
template <std::size_t width, class T>
void pack_one_after_other(const T* from, const gemm::Lines& lines, float* strip) {
  for (std::size_t p = 0; p < lines.depth; p += kLanes) {
    const std::size_t depth = lines.depth - p < kLanes ? lines.depth - p : kLanes;
    float* to = strip + p * width;
    Floats square[(width + kLanes - 1) / kLanes][kLanes];
#pragma GCC unroll 16
    for (std::size_t first = 0; first < width; first += kLanes) {
      Floats(&x)[kLanes] = square[first / kLanes];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i) {
        x[i] = first + i < width ? load_some(from + (first + i) * lines.line_stride + p, depth)
                                 : splat(0);
      }
      transpose(x);
    }
    if (depth == kLanes && (width % kLanes == 0 || p + kLanes < lines.depth)) {
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i) {
#pragma GCC unroll 4
        for (std::size_t first = 0; first < width; first += kLanes) {
          store(to + i * width + first, square[first / kLanes][i]);
        }
      }
    } else {
      for (std::size_t i = 0; i < depth; ++i) {
        for (std::size_t first = 0; first < width; first += kLanes) {
          store_some(to + i * width + first, square[first / kLanes][i],
                     width - first < kLanes ? width - first : kLanes);
        }
      }
    }
  }
}

template <std::size_t width, class T>
void pack(const gemm::Lines& lines, float* strips) {
  const T* from = reinterpret_cast<const T*>(lines.data);
  const std::size_t whole = lines.count / width;
  if (lines.line_stride == 1) {
    pack_side_by_side<width>(from, lines, whole, strips);
  } else {
    for (std::size_t i = 0; i < whole; ++i) {
      pack_one_after_other<width>(from + i * width * lines.line_stride, lines,
                                  strips + i * width * lines.depth);
    }
  }
  if (lines.count > whole * width) {
    pack_edge<width>(from + whole * width * lines.line_stride, lines, lines.count - whole * width,
                     strips + whole * width * lines.depth);
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
