// What GPUs take at most, since the arguments of a kernel hold it.
#pragma once

#include <cstdint>

namespace lockstep::ops {

inline constexpr std::int64_t kMostSlowedPairs = 128;  // of a head (Rotary::slowing)
inline constexpr std::int64_t kMostBuckets = 256;      // RelativeBuckets::count

}  // namespace lockstep::ops
