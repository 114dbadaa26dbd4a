// Dynamic distribution of work over threads, so that no thread waits for a core that another
// program slows down. For work whose bits do not depend on the thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "lockstep/ops/cpu/team/team.h"

namespace lockstep::cpu {

// Lines that threads take in multiples of `grain`: as many as they request, and fewer towards the
// end, so that all threads end together.
class Supply {
 public:
  Supply(const Range& all, int threads, std::size_t grain)
      : end_(all.end),
        shares_(threads == 1 ? 1 : 2 * static_cast<std::size_t>(threads)),
        grain_(grain),
        next_(all.begin) {}

  // Nothing when all is taken. `most` is a multiple of the grain.
  Range take(std::size_t most) {
    std::size_t begin = next_.load(std::memory_order_relaxed);
    std::size_t end = begin;
    do {
      const std::size_t share = (end_ - begin) / shares_ / grain_ * grain_;
      end = std::min(end_, begin + std::clamp(share, grain_, most));
    } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return {begin, end};
  }

 private:
  const std::size_t end_;
  const std::size_t shares_;
  const std::size_t grain_;
  std::atomic<std::size_t> next_;
};

}  // namespace lockstep::cpu
