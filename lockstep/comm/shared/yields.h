// Whether a rank that waits should yield its CPU before it sleeps. Used by one thread.
//
// A yield lets another rank run and costs a fraction of sleeping and being woken, as long as only
// ranks share the CPUs. A stranger who is computing keeps the CPU for all of its share,
// milliseconds on end, at every yield. So a wait whose yield took long is followed by some that
// sleep at once: few after the first, and twice as many every time that yielding has not become
// better since.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep::shared {

class Yields {
 public:
  static constexpr std::chrono::microseconds kLong{500};
  static constexpr int kFewest = 8;
  static constexpr int kMost = 1024;

  // At the start of every wait.
  bool worthwhile() {
    if (waits_without_ == 0) return true;
    --waits_without_;
    return false;
  }

  // After every yield; says whether to go on yielding in this wait.
  bool took(std::chrono::nanoseconds time) {
    if (time < kLong) return true;
    waits_without_ = next_;
    next_ = std::min(2 * next_, kMost);
    return false;
  }

  // At the end of a wait that was all short yields.
  void were_enough() { next_ = std::max(kFewest, next_ - next_ / 8); }

 private:
  int waits_without_ = 0;
  int next_ = kFewest;
};

}  // namespace lockstep::shared
