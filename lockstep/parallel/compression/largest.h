// Finds the k elements of largest magnitude in one pass, in time that does not depend on their
// order.
//
// Elements above a threshold become *candidates*. When the list of candidates is full, the k
// largest are kept and the smallest of those is the new threshold: no later element that is smaller
// or equal can be among the k largest. The list holds 2k candidates, so the cost of a selection is
// amortized over k new ones.
//
// The first threshold is estimated from a sample, slightly too low. If it was too high, so that
// fewer than k candidates are found, a second pass runs without it. The estimate affects only the
// time, never the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel {

// The bytes of the workspace of find_largest().
std::size_t largest_scratch_bytes(std::size_t elements, std::size_t kept);

struct Largest {
  std::span<const std::uint32_t>
      positions;    // ascending, in the scratch; of equal elements those at lower positions
  bool all_finite;  // whether all elements are finite
};

// residual += values, unless it is null; returns the `kept` largest of the sums, or of the values.
Largest find_largest(std::span<const float> values, float* residual, std::size_t kept,
                     std::byte* scratch);

}  // namespace lockstep::parallel
