// The moments of a device in nanoseconds of the trace's clock.
#pragma once

#include <cstdint>

#include "lockstep/ops/ops.h"

namespace lockstep::parallel {

class DeviceClock {
 public:
  // Waits for all that is queued: the two clocks are compared while the device is idle.
  explicit DeviceClock(Ops& ops);

  // Waits until the device has come to the moment.
  std::int64_t nanoseconds(const Moment& moment) const;

 private:
  Moment moment_;
  std::int64_t nanoseconds_ = 0;
};

}  // namespace lockstep::parallel
