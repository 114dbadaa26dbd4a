#include "lockstep/parallel/strategy/strategy.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

Share share_of(const StepPlan& plan, std::int64_t step, int worker, int workers) {
  worker /= plan.context;
  workers /= plan.context;
  const std::int64_t each = plan.micro_batches() / workers;
  const std::int64_t more = plan.micro_batches() % workers;
  const std::int64_t first = worker * each + std::min<std::int64_t>(worker, more);
  return {
      .step = step, .first_micro_batch = first, .micro_batches = each + (worker < more ? 1 : 0)};
}

void Strategy::complete_gradients() {
  fail(ErrorCode::kUnsupported, "the strategy {} has no gradients without an update", name());
}

StepCost with_axes(StepCost cost, const nn::AxisCost& axes) {
  cost.compute_seconds -= axes.seconds;
  cost.communication_seconds += axes.seconds;
  cost.exposed_seconds += axes.seconds;
  cost.bytes_sent += axes.bytes_sent;
  return cost;
}

}  // namespace lockstep::parallel
