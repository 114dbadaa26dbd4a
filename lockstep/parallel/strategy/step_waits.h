// The time of a step in which a worker waits for communication: its exposed time, and what of its
// communication no other thread has measured.
//
//   | agree to begin | forward, backward, update: compute            | agree to end |
//                      with waits for buckets, meetings about a norm
//
// All of a worker's step is either compute or exposed. The reports that workers exchange at the
// agreement to end cannot hold the time of that agreement. So each worker reports how long it took
// to get there, and the reader adds the rest: all workers leave an agreement at nearly the same
// time.
#pragma once

#include <span>
#include <utility>

#include "lockstep/base/system/clock.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class StepWaits {
 public:
  // A step begins with `agree()`, in which this worker waits for the others.
  template <class Agree>
  auto begin_with(Agree&& agree) {
    const auto begin = SteadyClock::now();
    auto result = std::forward<Agree>(agree)();
    *this = StepWaits();
    agreement_seconds_ = seconds_since(begin);
    return result;
  }

  // Compute has waited so long for what another thread sends and times.
  void add(double seconds) { waited_seconds_ += seconds; }

  // Compute waits while `exchange()` sends and receives.
  template <class Exchange>
  auto during(Exchange&& exchange) {
    const auto begin = SteadyClock::now();
    auto result = std::forward<Exchange>(exchange)();
    exchange_seconds_ += seconds_since(begin);
    return result;
  }

  // What this worker reports at the agreement to end: `mine` has compute with all waiting, and
  // communication as another thread has timed it.
  StepCost cost_of(StepCost mine) const;

  // Called after the agreement to end: adds to every worker's report the time that it waited there.
  // No wait counts longer than this worker's step. A worker that arrived earlier at the beginning
  // of the step waited for what this one does between steps, such as a checkpoint.
  void add_agreement_to_end(std::span<StepCost> reports) const;

 private:
  SteadyClock::time_point begun_ = SteadyClock::now();  // the end of the agreement to begin
  double agreement_seconds_ = 0;
  double waited_seconds_ = 0;
  double exchange_seconds_ = 0;
};

}  // namespace lockstep::parallel
