// What the codecs that send a few elements have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/parallel/compression/options.h"

namespace lockstep::parallel {

// How many of `elements` are sent: at least one, where there are any.
std::size_t kept_elements(std::size_t elements, double ratio);

// The codec of sums over so many ranks, where `options` are those of each one's gradients. With
// topk ranks choose different elements, so that sums have more of them: all are passed on, but not
// more than four times as many. With randomk they draw the same.
CompressionOptions options_of_sums(CompressionOptions options, std::size_t ranks);

// Throws Error(kInvalidArgument) for a ratio outside of (0, 1].
double checked_ratio(double ratio, std::string_view codec);

// Throws Error(kUnsupported) for more elements than positions of 32 bits have names for.
void check_positions(std::size_t elements, std::string_view codec);

}  // namespace lockstep::parallel
