// Packing into strips of tiles (tiles.h). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/gemm/pack.inl"
#include "lockstep/ops/cpu/gemm/tiles/tiles.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

using gemm::TileKernels;

constexpr std::size_t kTileRows = 16;
constexpr std::size_t kTilePairs = 16;
constexpr std::size_t kTileElements = 2 * kTileRows * kTilePairs;
static_assert(kTileRows % kLanes == 0);

typedef std::uint32_t PairsInMemory
    __attribute__((vector_size(LOCKSTEP_VECTOR_BYTES), aligned(2), may_alias));

// Whether the lines of a matrix lie side by side, so that a row of it is one of depth, or one after
// the other.
enum class Lying { kSideBySide, kOneAfterOther };

// kLanes pairs: of one line, from its pair `column` on, or one pair of each of kLanes lines.
template <Lying lying>
inline Words load_pairs(const BFloat16* from, std::size_t stride, std::size_t row,
                        std::size_t column) {
  if constexpr (lying == Lying::kOneAfterOther) {
    return *reinterpret_cast<const PairsInMemory*>(from + row * stride + 2 * column);
  } else {
    const BFloat16* at = from + 2 * row * stride + column;
    const Shorts even = *reinterpret_cast<const ShortsInMemory*>(at);
    const Shorts odd = *reinterpret_cast<const ShortsInMemory*>(at + stride);
    return to_upper_half(odd) | (to_upper_half(even) >> 16);
  }
}

// A tile that is full. As it lies, or transposed.
template <Lying lying, bool transposed>
inline void pack_tile(const BFloat16* from, std::size_t stride, BFloat16* tile) {
  auto* pairs = reinterpret_cast<float*>(tile);
  for (std::size_t row = 0; row < kTileRows; row += kLanes) {
    for (std::size_t column = 0; column < kTilePairs; column += kLanes) {
      Floats some[kLanes];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i) {
        some[i] = (Floats)load_pairs<lying>(from, stride, row + i, column);
      }
      if constexpr (transposed) transpose(some);
      const std::size_t to = transposed ? column * kTileRows + row : row * kTilePairs + column;
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i) store(pairs + to + i * kTilePairs, some[i]);
    }
  }
}

// A tile of fewer lines, or of less depth.
template <bool by_pairs>
void pack_edge_tile(const gemm::Lines& lines, std::size_t line, std::size_t depth, BFloat16* tile) {
  const auto* from = reinterpret_cast<const BFloat16*>(lines.data);
  for (std::size_t i = 0; i < kTileRows; ++i) {
    for (std::size_t p = 0; p < 2 * kTilePairs; ++p) {
      const bool is_there = line + i < lines.count && depth + p < lines.depth;
      const std::size_t to =
          by_pairs ? (p / 2 * kTileRows + i) * 2 + p % 2 : i * 2 * kTilePairs + p;
      tile[to] = is_there ? from[(line + i) * lines.line_stride + (depth + p) * lines.depth_stride]
                          : BFloat16{};
    }
  }
}

// Lines come from memory: asks for those of a step to come, of one strip.
template <Lying lying>
inline void prefetch_step(const gemm::Lines& lines, std::size_t line, std::size_t depth) {
  constexpr std::size_t kAhead = lying == Lying::kOneAfterOther ? 8 : 1;
  const std::size_t ahead = depth + kAhead * TileKernels::kStep;
  if (ahead + TileKernels::kStep > lines.depth) return;
  const auto* from = reinterpret_cast<const BFloat16*>(lines.data) + line * lines.line_stride +
                     ahead * lines.depth_stride;
  const std::size_t stride =
      lying == Lying::kOneAfterOther ? lines.line_stride : lines.depth_stride;
  for (std::size_t i = 0; i < TileKernels::kLines; ++i) __builtin_prefetch(from + i * stride);
}

// The two tiles of a step of a strip.
template <Lying lying, bool by_pairs>
inline void pack_step(const gemm::Lines& lines, std::size_t line, std::size_t depth,
                      BFloat16* tiles) {
  constexpr bool kTransposed = by_pairs != (lying == Lying::kSideBySide);
  const std::size_t stride =
      lying == Lying::kOneAfterOther ? lines.line_stride : lines.depth_stride;
  const bool is_deep = depth + TileKernels::kStep <= lines.depth;
  if (is_deep && line + TileKernels::kLines <= lines.count) {
    prefetch_step<lying>(lines, line, depth);
  }
  for (std::size_t half = 0; half < 2; ++half, line += kTileRows, tiles += kTileElements) {
    if (!is_deep || line + kTileRows > lines.count) {
      pack_edge_tile<by_pairs>(lines, line, depth, tiles);
      continue;
    }
    const auto* from = reinterpret_cast<const BFloat16*>(lines.data) + line * lines.line_stride +
                       depth * lines.depth_stride;
    pack_tile<lying, kTransposed>(from, stride, tiles);
  }
}

// In the order in which lines lie in memory: strip by strip, or step by step.
template <bool by_pairs>
void pack_strips(const gemm::Lines& lines, BFloat16* strips) {
  const std::size_t steps = (lines.depth + TileKernels::kStep - 1) / TileKernels::kStep;
  const std::size_t strip_size = steps * 2 * kTileElements;
  if (lines.line_stride == 1) {
    for (std::size_t step = 0; step < steps; ++step) {
      BFloat16* to = strips + step * 2 * kTileElements;
      for (std::size_t line = 0; line < lines.count; line += TileKernels::kLines) {
        pack_step<Lying::kSideBySide, by_pairs>(lines, line, step * TileKernels::kStep, to);
        to += strip_size;
      }
    }
  } else {
    for (std::size_t line = 0; line < lines.count; line += TileKernels::kLines) {
      for (std::size_t step = 0; step < steps; ++step, strips += 2 * kTileElements) {
        pack_step<Lying::kOneAfterOther, by_pairs>(lines, line, step * TileKernels::kStep, strips);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
