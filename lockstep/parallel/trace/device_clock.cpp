#include "lockstep/parallel/trace/device_clock.h"

#include <cmath>

#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

DeviceClock::DeviceClock(Ops& ops) {
  ops.synchronize();
  nanoseconds_ = trace_now();
  moment_ = ops.moment();
}

std::int64_t DeviceClock::nanoseconds(const Moment& moment) const {
  constexpr double kNanoseconds = 1e9;
  return nanoseconds_ + std::llround(moment.seconds_since(moment_) * kNanoseconds);
}

}  // namespace lockstep::parallel
