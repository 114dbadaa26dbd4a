// Whether a rank that waits should yield its CPU before it sleeps. Used by one thread.
//
// A yield lets another rank run and costs a fraction of sleeping and being woken, as long as only
// ranks share the CPUs. A stranger who is computing keeps the CPU for all of its share,
// milliseconds on end, at every yield. So after a yield that took long a rank sleeps at once when
// it waits, until the clock comes to the next multiple of a period: short at first, twice as long
// every time that yielding soon takes long again. Ranks go by the same clock, so they all start to
// yield again at the same moment; one that yields while the others sleep would meet nobody but
// strangers.
#pragma once

#include <algorithm>
#include <chrono>

#include "lockstep/base/clock.h"

namespace lockstep::shared {

class Yields {
 public:
  using Time = SteadyClock::time_point;
  static constexpr std::chrono::nanoseconds kLong = std::chrono::microseconds(500);
  static constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(8);
  static constexpr std::chrono::nanoseconds kLongest = 32 * kShortest;

  bool worthwhile(Time now) const { return now >= resumed_; }

  // After every yield; says whether to go on yielding.
  bool took(Time before, Time after) {
    if (after - before < kLong) return true;
    const bool soon = after - resumed_ < period_;
    period_ = soon ? std::min(2 * period_, kLongest) : kShortest;
    resumed_ = Time((after.time_since_epoch() / period_ + 1) * period_);
    return false;
  }

 private:
  std::chrono::nanoseconds period_ = kShortest;
  Time resumed_{};  // when yielding was, or will be, taken up again
};

}  // namespace lockstep::shared
