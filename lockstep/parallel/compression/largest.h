// The k elements of largest magnitude, in one pass over all and in time that does not depend on
// their order.
//
// Elements above a threshold become *candidates*. When there is no more room for candidates, the k
// largest of them are kept and the least of those is the new threshold: nothing below it can be
// among the k largest, nor, being behind, can its equals. There is room for k and as many again, so
// that a selection among candidates is paid for by as many new ones.
//
// The first threshold is guessed from a sample, a little too low. Should it have been too high, so
// that less than k candidates are found, a second pass does without: the guess changes the time
// that is taken, never the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel {

// Of the memory that find_largest() works in.
std::size_t largest_scratch_bytes(std::size_t elements, std::size_t kept);

struct Largest {
  std::span<const std::uint32_t> positions;  // rising, in the scratch; of equals the lower ones
  bool all_finite;                           // of all elements
};

// residual += values, unless it is null; the `kept` largest of the sums, or of the values.
Largest find_largest(std::span<const float> values, float* residual, std::size_t kept,
                     std::byte* scratch);

}  // namespace lockstep::parallel
