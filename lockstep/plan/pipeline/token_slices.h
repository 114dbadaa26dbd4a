// How to cut a sequence into slices for token-level pipelining (TeraPipe).
//
// Slices go through K stages one behind the other. All stages take the same time for a slice, so
// the last slice leaves the last stage after
//
//   sum of t + (K - 1) * the largest t.
//
// Attention reads all tokens before a slice, so a slice of the same length takes longer the later
// it is. Equal lengths make the last slice the slowest, and all stages wait for it. The best
// lengths shrink towards the end.
#pragma once

#include <functional>
#include <vector>

namespace lockstep::plan {

// The time of one stage for a slice of `length` tokens behind `context` tokens of its sequence.
using SliceTime = std::function<double(int length, int context)>;

struct TokenSlices {
  std::vector<int> lengths;  // from the first token to the last
  double time = 0;           // through all stages
};

// The formula above.
double time_of_slices(const std::vector<int>& lengths, int stages, const SliceTime& time);

// The fastest slices whose lengths are multiples of `granularity`, by the dynamic programme of the
// TeraPipe paper: for each possible largest time, the least sum of slices that do not exceed it.
// n = tokens / granularity lengths take O(n^2) evaluations of `time` and at most O(n^4) additions.
// Throws Error(kInvalidArgument) when granularity does not divide tokens.
TokenSlices best_slices(int tokens, int stages, const SliceTime& time, int granularity = 1);

// `slices` slices of nearly equal length, longer ones first.
TokenSlices uniform_slices(int tokens, int slices, int stages, const SliceTime& time);

}  // namespace lockstep::plan
