// Packing into tiles (gemm/tiles.h) and the table of all that is done with them. Part of a file of
// kernels (vector.inl) that says how tiles are multiplied.
#pragma once

#include "lockstep/ops/cpu/gemm/finish.inl"
#include "lockstep/ops/cpu/gemm/pack.inl"
#include "lockstep/ops/cpu/gemm/tiles.h"
#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

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

// kLanes pairs: of one line, from `column` of its pairs on, or of so many lines.
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
#pragma GCC unroll 4
  for (std::size_t row = 0; row < kTileRows; row += kLanes) {
#pragma GCC unroll 4
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

// Does what is aside, a part after every few steps: all at once, it would hold up the tiles.
class AsideWork {
 public:
  AsideWork(const gemm::Aside& aside, std::size_t steps) : aside_(aside), steps_(steps) {
    std::size_t lines = 0;
    for (std::size_t i = 0; i < aside.fetch_count; ++i) lines += aside.fetches[i].count;
    lines_per_step_ = steps == 0 ? 0 : (lines + steps - 1) / steps;
  }

  void after_step(std::size_t step) {
    constexpr std::size_t kStepsAtOnce = 4;
    for (std::size_t i = 0; i < lines_per_step_; ++i) fetch_line();
    if ((step + 1) % kStepsAtOnce == 0) finish_rows_up_to(rows() * (step + 1) / steps_);
  }
  void end() { finish_rows_up_to(rows()); }

 private:
  std::size_t rows() const { return aside_.square.place.rows; }

  void fetch_line() {
    if (fetch_ == aside_.fetch_count) return;
    const gemm::Fetch& from = aside_.fetches[fetch_];
    __builtin_prefetch(from.first + line_ * from.stride);
    if (++line_ < from.count) return;
    line_ = 0;
    ++fetch_;
  }

  void finish_rows_up_to(std::size_t end) {
    if (end == rows_done_) return;
    const gemm::Unfinished& from = aside_.square;
    gemm::Place some = from.place;
    some.row += rows_done_;
    some.rows = end - rows_done_;
    from.finish(*from.product, from.square + rows_done_ * TileKernels::kLines, some);
    rows_done_ = end;
  }

  const gemm::Aside& aside_;
  const std::size_t steps_;
  std::size_t lines_per_step_ = 0;
  std::size_t fetch_ = 0;
  std::size_t line_ = 0;
  std::size_t rows_done_ = 0;
};

template <class Unit>
void multiply_strips(std::size_t steps, const BFloat16* row_strip, const BFloat16* column_strip,
                     float* square, bool add, const gemm::Aside& aside) {
  constexpr std::size_t kStepElements = 2 * kTileElements;
  AsideWork work(aside, steps);
  if (add) {
    Unit::load(square);
  } else {
    Unit::clear();
  }
  for (std::size_t step = 0; step < steps; ++step) {
    Unit::multiply(row_strip + step * kStepElements, column_strip + step * kStepElements);
    work.after_step(step);
  }
  Unit::store(square);
  work.end();
}

// What tiles are multiplied with is a Unit:
//
//   begin(), end()            as in TileKernels
//   clear(), load(square)     what the sums start from
//   multiply(rows, columns)   adds a step of two strips to them
//   store(square)             what became of them
template <class Unit>
constexpr TileKernels make_tile_kernels() {
  constexpr std::size_t kVectors = TileKernels::kLines / kLanes;
  return {.begin = Unit::begin,
          .end = Unit::end,
          .pack_rows = pack_strips<false>,
          .pack_columns = pack_strips<true>,
          .multiply = multiply_strips<Unit>,
          .finish_bf16 = finish<kVectors, BFloat16>,
          .finish_f32 = finish<kVectors, float>};
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
