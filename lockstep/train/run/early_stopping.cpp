#include "lockstep/train/run/early_stopping.h"

#include <fmt/format.h>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"

namespace lockstep::train {

void EarlyStopping::add(std::int64_t step, double loss) {
  if (best_step_ != 0 && !(loss < best_ - least_improvement_)) {
    ++counted_;
    return;
  }
  best_ = loss;
  best_step_ = step;
  counted_ = 0;
}

std::string EarlyStopping::why() const {
  return fmt::format(
      "the validation loss has not improved on {:.4f}, of step {}, {}in {}", best_,
      format_count(static_cast<std::uint64_t>(best_step_)),
      least_improvement_ > 0 ? fmt::format("by more than {} ", least_improvement_) : "",
      counted(static_cast<std::uint64_t>(counted_), "validation"));
}

EarlyStopping::State EarlyStopping::state() const {
  return {.best = best_,
          .best_step = static_cast<double>(best_step_),
          .counted = static_cast<double>(counted_)};
}

void EarlyStopping::set_state(const State& state) {
  best_ = state.best;
  best_step_ = static_cast<std::int64_t>(state.best_step);
  counted_ = static_cast<int>(state.counted);
}

}  // namespace lockstep::train
