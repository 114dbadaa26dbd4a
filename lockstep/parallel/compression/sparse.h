// Shared parts of topk and randomk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/parallel/compression/options.h"

namespace lockstep::parallel {

// How many of `elements` are sent: at least one, unless there are none.
std::size_t kept_elements(std::size_t elements, double ratio);

// The options of the codec for sums over `ranks` ranks, given those for gradients. With topk, ranks
// choose different elements, so sums have more: at most four times as many are sent. With randomk
// all ranks send the same elements.
CompressionOptions options_of_sums(CompressionOptions options, std::size_t ranks);

// Throws Error(kInvalidArgument) for a ratio outside of (0, 1].
double checked_ratio(double ratio, std::string_view codec);

// Throws Error(kUnsupported) if 32-bit positions are too small.
void check_positions(std::size_t elements, std::string_view codec);

}  // namespace lockstep::parallel
