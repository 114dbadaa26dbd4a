#include "lockstep/cli/explain/step_clock.h"

#include <algorithm>

namespace lockstep::cli {

StepClock::StepClock(const nn::MemoryPlan& plan, double flops_per_second)
    : forward_(plan.specs.size() + 1), backward_(plan.specs.size() + 1) {
  const std::size_t blocks = plan.specs.size();
  for (std::size_t block = 0; block < blocks; ++block) {
    forward_[block + 1] = forward_[block] + plan.specs[block].forward_flops / flops_per_second;
  }
  backward_[blocks] = forward_[blocks];
  for (std::size_t block = blocks; block-- > 0;) {
    const nn::BlockSpec& spec = plan.specs[block];
    backward_[block] =
        backward_[block + 1] + (spec.backward_flops + spec.recompute_flops) / flops_per_second;
  }
}

double StepClock::finished(const nn::FlatParameters& flat, std::size_t block,
                           std::size_t element) const {
  const nn::FlatRange range = flat.range(block);
  // What belongs to another block, as a tied table does, is finished when this block has ended.
  if (range.elements == 0 || element < range.first || element > range.end()) {
    return backward_end(block);
  }
  const double share =
      static_cast<double>(element - range.first) / static_cast<double>(range.elements);
  return backward_begin(block) + share * (backward_end(block) - backward_begin(block));
}

}  // namespace lockstep::cli
