// What the tiled product (tiled.h) does in its inner loops.
//
//   tile    16 rows of 64 bytes, which one register of AMX holds and one instruction multiplies
//   pair    two elements of bf16 that follow each other in depth: 32 bits
//   step    32 of depth: the 16 pairs that one instruction sums up
//   strip   32 lines of a matrix (rows of a, columns of b), step by step, each step two tiles.
//   Those
//           of a have a line in each row; those of b a pair of each line in each row:
//
//              a: line 0   | pair 0  pair 1  ... pair 15 |     b: pair 0  | line 0  ... line 15 |
//                 line 1   | pair 0  pair 1  ... pair 15 |        pair 1  | line 0  ... line 15 |
//
//   square  the 32 x 32 sums that two strips make, f32, row by row
#pragma once

#include <cstddef>

#include "lockstep/base/math/half.h"
#include "lockstep/ops/cpu/gemm/kernels.h"

namespace lockstep::cpu::gemm {

// Finishes a square and stores it to the output.
using FinishSquare = void (*)(const Product& product, const float* square, const Place& place);

// A square that is multiplied and not yet finished; none where it has no rows.
struct Unfinished {
  const Product* product = nullptr;
  const float* square = nullptr;
  Place place;
  FinishSquare finish = nullptr;
};

// Lines of the cache that will be needed.
struct Fetch {
  const std::byte* first = nullptr;
  std::size_t stride = 0;
  std::size_t count = 0;
};

// What a thread does beside multiplying, while tiles work by themselves.
struct Aside {
  static constexpr std::size_t kMostFetches = 11;

  Unfinished square;
  Fetch fetches[kMostFetches];
  std::size_t fetch_count = 0;
};

struct TileKernels {
  static constexpr std::size_t kLines = 32;  // of a strip
  static constexpr std::size_t kStep = 32;   // depth
  static constexpr std::size_t kSquare = kLines * kLines;

  // Between the two the thread has tiles.
  void (*begin)();
  void (*end)();
  // Lays down all strips of the lines, one after the other; what is missing of the last line and
  // the last step is zero.
  void (*pack_rows)(const Lines& lines, BFloat16* strips);
  void (*pack_columns)(const Lines& lines, BFloat16* strips);
  // square = row_strip column_strip, or square += where `add`. Steps are summed up one after the
  // other, so that the same bits come out however depth is cut between them. All is aligned to 64
  // bytes.
  void (*multiply)(std::size_t steps, const BFloat16* row_strip, const BFloat16* column_strip,
                   float* square, bool add, const Aside& aside);
  // For the types of the output.
  FinishSquare finish_bf16;
  FinishSquare finish_f32;
};

// The same in plain loops, on any CPU: what the others are tested against.
extern const TileKernels kEmulatedTiles;
#if defined(__x86_64__)
extern const TileKernels kAmxTiles;
#endif

}  // namespace lockstep::cpu::gemm
