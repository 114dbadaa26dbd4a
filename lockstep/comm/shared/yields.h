// Whether a rank that waits should yield its CPU before it sleeps. Used by one thread.
//
// A yield lets another rank run and costs a fraction of sleeping and being woken, as long as only
// ranks share the CPUs. A stranger who is computing keeps the CPU for all of its share,
// milliseconds on end, at every yield; of someone who slept and is woken the kernel thinks better.
// So after a yield that took long the next waits sleep at once.
#pragma once

#include <chrono>

namespace lockstep::shared {

class Yields {
 public:
  static constexpr std::chrono::microseconds kLong{500};
  static constexpr int kWaitsWithout = 256;

  // At the start of every wait.
  bool worthwhile() {
    if (waits_without_ == 0) return true;
    --waits_without_;
    return false;
  }

  // After every yield; says whether to go on yielding.
  bool took(std::chrono::nanoseconds time) {
    if (time < kLong) return true;
    waits_without_ = kWaitsWithout;
    return false;
  }

 private:
  int waits_without_ = 0;
};

}  // namespace lockstep::shared
