// What attention of bf16 does in tiles (gemm/tiles/tiles.h). Part of attention's kernels.
//
// Products are of packed matrices, whose extents are multiples of 32: on the left rows are packed,
// on the right columns, both in pairs along the depth of the product. Everything has queries in its
// columns, so that vectors go along queries, and no product of a meeting needs a transposed factor:
//
//   scores[key][query]  = keys      x  queries     depth: head
//   sums[head][query]  += values^T  x  weights     depth: keys, and pairs of keys come from two
//   rows
//
// Weights, that is probabilities, are rounded to bf16 for their products, as are the gradients of
// scores.
#pragma once

#include <algorithm>

#include "lockstep/base/simd/softmax.inl"
#include "lockstep/ops/cpu/attention/dropout.inl"
#include "lockstep/ops/cpu/gemm/tiles/pack.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// A group of queries that a tile has in its rows of pairs.
constexpr std::size_t kGroup = 16;
constexpr std::size_t kGroupVectors = kGroup / kLanes;
constexpr std::size_t kBlockElements = kAttentionBlock * kAttentionBlock;
static_assert(kAttentionBlock % TileKernels::kLines == 0);

// c = left right, or c += where `add`. c has `rows` rows and kAttentionBlock or head columns.
template <class Unit, bool add>
void multiply_packed(const BFloat16* left, std::size_t rows, const BFloat16* right,
                     std::size_t columns, std::size_t depth, const Matrix& c) {
  const std::size_t steps = depth / TileKernels::kStep;
  const std::size_t strip = steps * 2 * kTileElements;
  for (std::size_t row = 0; row < rows; row += TileKernels::kLines, left += strip) {
    const BFloat16* at = right;
    for (std::size_t column = 0; column < columns; column += TileKernels::kLines) {
      float* square = c.row(row) + column;
      if (add) {
        Unit::load(square, c.stride);
      } else {
        Unit::clear();
      }
      Unit::multiply(steps, left, at, [](std::size_t) {});
      at += strip;
      Unit::store(square, c.stride);
    }
  }
}

// Rows of one head: kAttentionBlock of them, where they lie or copied.
struct BlockRows {
  const BFloat16* data = nullptr;
  std::size_t width = 0;  // elements from row to row
};

// Fewer rows are filled up with zeros in `copy`, as are those that `mask` hides, whatever they
// hold.
inline BlockRows whole_block(const HeadPart<BFloat16>& from, std::size_t count,
                             std::size_t head_size, const std::uint8_t* mask, BFloat16* copy) {
  if (count == kAttentionBlock && mask == nullptr) return {from.data, from.width};
  for (std::size_t i = 0; i < kAttentionBlock; ++i) {
    BFloat16* to = copy + i * head_size;
    if (i < count && (mask == nullptr || mask[i] != 0)) {
      std::memcpy(to, from.row(i), head_size * sizeof(BFloat16));
    } else {
      std::fill_n(to, head_size, BFloat16{});
    }
  }
  return {copy, head_size};
}

// Lines are the block's rows, or the columns of its head.
inline gemm::Lines lines_of_rows(const BlockRows& rows, std::size_t head_size) {
  return {.data = reinterpret_cast<const std::byte*>(rows.data),
          .line_stride = rows.width,
          .depth_stride = 1,
          .count = kAttentionBlock,
          .depth = head_size};
}
inline gemm::Lines lines_of_head(const BlockRows& rows, std::size_t head_size) {
  return {.data = reinterpret_cast<const std::byte*>(rows.data),
          .line_stride = 1,
          .depth_stride = rows.width,
          .count = head_size,
          .depth = kAttentionBlock};
}

// Where 16 pairs of a packed right factor of queries lie: the group's row for keys 2 pair and the
// next.
inline BFloat16* pairs_at(BFloat16* packed, std::size_t group, std::size_t pair) {
  constexpr std::size_t kStrip = kAttentionBlock / TileKernels::kStep * 2 * kTileElements;
  return packed + group / 2 * kStrip + pair / kTilePairs * 2 * kTileElements +
         group % 2 * kTileElements + pair % kTilePairs * 2 * kGroup;
}

// Where 16 queries of a packed left factor of keys lie.
inline BFloat16* row_at(BFloat16* packed, std::size_t key, std::size_t group) {
  constexpr std::size_t kStrip = kAttentionBlock / TileKernels::kStep * 2 * kTileElements;
  return packed + key / TileKernels::kLines * kStrip + group / 2 * 2 * kTileElements +
         key / kTileRows % 2 * kTileElements + key % kTileRows * 2 * kTilePairs +
         group % 2 * kGroup;
}

// To the nearest bf16; halves go up.
inline Words rounded_bits(Floats x) { return (Words)x + 0x8000; }
inline void store_pairs(BFloat16* to, Floats even, Floats odd) {
  const Words pairs = (rounded_bits(even) >> 16) | (rounded_bits(odd) & 0xffff0000);
  store(reinterpret_cast<float*>(to), (Floats)pairs);
}

// What scores are still to be multiplied by. A soft cap and a bias need them scaled; and a scale
// that is not positive would turn the -infinity of masked keys into +infinity.
inline float scale_beside(const Matrix& scores, const AttentionCall& call) {
  if (call.softcap == 0 && call.distances == 0 && call.scale > 0) return call.scale;
  for (std::size_t i = 0; i < kBlockElements; i += kLanes) {
    const Floats scaled = load(scores.data + i) * call.scale;
    store(scores.data + i, call.softcap > 0 ? soft_cap(scaled, call.softcap) : scaled);
  }
  return 1;
}

// to[i][j] = from[j][i] * factors[i] for the `count` first rows of `to`.
template <class T>
void narrow_transposed(const Matrix& from, std::size_t count, std::size_t head_size,
                       const float* factors, const HeadPart<T>& to) {
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Floats factor = load(factors + i);
    for (std::size_t h = 0; h < head_size; h += kLanes) {
      Floats square[kLanes];
      for (std::size_t k = 0; k < kLanes; ++k) square[k] = load(from.row(h + k) + i) * factor;
      transpose(square);
      for (std::size_t k = 0; k < smaller(kLanes, count - i); ++k) {
        store(to.row(i + k) + h, square[k]);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
