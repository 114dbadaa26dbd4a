// Moments in the work of a device: how long parts of it took, without a wait between them.
//
//   const Moment begin = ops.moment();
//   ops.run(...);
//   const Moment end = ops.moment();
//   end.seconds_since(begin);   // waits until the device has come to both
//
// A moment of a device comes when everything queued before it is done. One of the CPU is when it
// was made: there operations are done when they return.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/system/clock.h"

namespace lockstep {

class Moment {
 public:
  // What a device knows of one of its moments.
  class State {
   public:
    virtual ~State() = default;
    // `earlier` is one of the same device. Waits for both.
    virtual double seconds_since(const State& earlier) const = 0;
  };

  Moment() : when_(SteadyClock::now()) {}
  explicit Moment(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  // Both are of one device. Negative where the other one came later.
  double seconds_since(const Moment& earlier) const;

  // Of the CPU: when it was, exactly. Empty for a moment of a device, which has a clock of its own.
  std::optional<SteadyClock::time_point> host_time() const;

 private:
  SteadyClock::time_point when_;
  std::shared_ptr<const State> state_;  // nullptr: of the CPU
};

}  // namespace lockstep
