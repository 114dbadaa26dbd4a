// Products of a number of rows that only the data decides.
//
// The rows of an expert are as many as tokens chose it. A product needs workspace by its shape, and
// some implementations prepare every shape once. So rows are multiplied in pieces of few sizes: 1
// to 8, and then four for each doubling (10, 12, 14, 16, 20, ...). The largest that fits goes
// first, so a number of rows takes two or three pieces.
#pragma once

#include <cstdint>

namespace lockstep::nn {

// The largest size of a piece that is not over `rows`, which is 1 or more.
inline std::int64_t piece_of(std::int64_t rows) {
  std::int64_t step = 1;
  while (rows / step >= 8) step *= 2;
  return rows / step * step;
}

// f(first, rows) for the pieces of `count` rows.
template <class F>
void for_pieces(std::int64_t count, F&& f) {
  for (std::int64_t first = 0; first < count;) {
    const std::int64_t rows = piece_of(count - first);
    f(first, rows);
    first += rows;
  }
}

// f(rows) for all sizes of pieces of up to `most` rows.
template <class F>
void for_piece_sizes(std::int64_t most, F&& f) {
  for (std::int64_t rows = most; rows > 0; rows = piece_of(rows) - 1) f(piece_of(rows));
}

}  // namespace lockstep::nn
