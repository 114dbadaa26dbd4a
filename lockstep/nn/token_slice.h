// Token-level pipelining (TeraPipe): the tokens of a sequence go through pipeline stages in slices,
// the first tokens first.
//
//   whole sequence   | slice 0 | slice 1 | slice 2 |
//   forward               0    ->   1    ->   2        slice 1 reads keys and values of slice 0
//   backward              0    <-   1    <-   2        slice 2 adds to gradients of those of 0, 1
//
// A micro-batch is one sequence. Its memory is that of the whole sequence, and a slice works on its
// part of every tensor: with one sequence that is a range of consecutive elements. So keys and
// values of earlier slices are where they were made.
#pragma once

#include <cstdint>

namespace lockstep::nn {

// The tokens of a sequence that one computation has.
struct TokenSlice {
  std::int64_t first = 0;  // its position in the sequence
  std::int64_t of = 0;     // tokens of the sequence; 0: the computation has all of them

  bool is_whole() const { return of == 0; }
  friend bool operator==(const TokenSlice&, const TokenSlice&) = default;
};

}  // namespace lockstep::nn
