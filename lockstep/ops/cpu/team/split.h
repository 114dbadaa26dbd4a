// Divides work over threads by elements, rows or columns.
#pragma once

#include <cstddef>

#include "lockstep/ops/cpu/team/team.h"

namespace lockstep::cpu {

// Below this size one thread is faster than waking the others.
inline constexpr std::size_t kBytesWorthSplitting = std::size_t{32} << 10;

// f(range) for the shares of all threads (ThreadTeam::share), or for everything at once on the
// caller's thread where it has few bytes.
template <class F>
void split(ThreadTeam& team, std::size_t count, std::size_t grain, std::size_t bytes, F&& f) {
  if (team.size() == 1 || bytes < kBytesWorthSplitting) {
    if (count > 0) f(Range{0, count});
    return;
  }
  team.run([&](int thread) {
    const Range range = share(count, team.size(), thread, grain);
    if (range.size() > 0) f(range);
  });
}

// Elements that threads do not cut: one or more lines of cache, whatever the type.
inline constexpr std::size_t kElementGrain = 64;

}  // namespace lockstep::cpu
