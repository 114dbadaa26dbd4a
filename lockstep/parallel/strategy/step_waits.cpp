#include "lockstep/parallel/strategy/step_waits.h"

#include <algorithm>

namespace lockstep::parallel {

StepCost StepWaits::cost_of(StepCost mine) const {
  const double inside = waited_seconds_ + exchange_seconds_;
  mine.compute_seconds -= inside;
  mine.exposed_seconds = inside + agreement_seconds_;
  // A wait ends a moment after what it waited for.
  mine.communication_seconds = std::max(
      mine.communication_seconds + exchange_seconds_ + agreement_seconds_, mine.exposed_seconds);
  mine.elapsed_seconds = seconds_since(begun_);
  return mine;
}

void StepWaits::add_agreement_to_end(std::span<StepCost> reports) const {
  const double all = seconds_since(begun_);
  const double step = agreement_seconds_ + all;
  for (StepCost& report : reports) {
    const double waited = std::max(all - report.elapsed_seconds, 0.0);
    const double most = std::max(step - report.compute_seconds, 0.0);
    const double excess = std::max(report.exposed_seconds + waited - most, 0.0);
    report.exposed_seconds += waited - excess;
    report.communication_seconds += waited - excess;
  }
}

}  // namespace lockstep::parallel
