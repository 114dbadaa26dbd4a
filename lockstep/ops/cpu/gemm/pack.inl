// Packing of strips (gemm/kernels.h). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/ops/cpu/gemm/kernels.h"
#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

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

// A strip of fewer lines than it has room for.
template <std::size_t width, class T>
void pack_edge(const T* from, const gemm::Lines& lines, std::size_t count, float* strip) {
  for (std::size_t p = 0; p < lines.depth; ++p, strip += width) {
    for (std::size_t i = 0; i < width; ++i) {
      strip[i] = i < count ? widened(from[i * lines.line_stride + p * lines.depth_stride]) : 0.0f;
    }
  }
}

// Lines that lie side by side: every step of depth is a copy of `width` elements.
template <std::size_t width, class T>
void pack_side_by_side(const T* from, const gemm::Lines& lines, float* strip) {
  constexpr std::size_t kWhole = width / kLanes * kLanes;
  for (std::size_t p = 0; p < lines.depth; ++p, from += lines.depth_stride, strip += width) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kWhole; i += kLanes) store(strip + i, load(from + i));
    if constexpr (kWhole < width) {
      store(strip + kWhole, load_part(from + kWhole, width - kWhole));
    }
  }
}

// Lines one after the other: squares of them are transposed. Where the width is no multiple of
// kLanes, the lanes that are too many are overwritten by what comes next.
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
    if (depth == kLanes) {
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
          store(to + i * width + first, square[first / kLanes][i]);
        }
      }
    }
  }
}

template <std::size_t width, class T>
void pack(const gemm::Lines& lines, float* strips) {
  const T* from = reinterpret_cast<const T*>(lines.data);
  for (std::size_t first = 0; first < lines.count; first += width) {
    const std::size_t count = lines.count - first < width ? lines.count - first : width;
    if (count < width) {
      pack_edge<width>(from, lines, count, strips);
    } else if (lines.line_stride == 1) {
      pack_side_by_side<width>(from, lines, strips);
    } else {
      pack_one_after_other<width>(from, lines, strips);
    }
    from += width * lines.line_stride;
    strips += width * lines.depth;
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
