#include "lockstep/parallel/trace/device_clock.h"

#include <algorithm>
#include <cmath>

#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

DeviceClock::DeviceClock(Ops& ops) {
  ops.synchronize();
  moment_ = ops.moment();
  ops.synchronize();
  nanoseconds_ = trace_now();
}

std::int64_t DeviceClock::nanoseconds(const Moment& moment) const {
  if (const auto when = moment.host_time()) return trace_time(*when);
  constexpr double kNanoseconds = 1e9;
  const auto since = std::llround(moment.seconds_since(moment_) * kNanoseconds);
  return std::min<std::int64_t>(nanoseconds_ + since, trace_now());
}

}  // namespace lockstep::parallel
