#include "lockstep/optim/loss_scale.h"

#include <algorithm>

namespace lockstep::optim {
namespace {

// Beyond these a scale would itself overflow or vanish in f32.
constexpr double kLargest = 0x1p60;
constexpr double kSmallest = 0x1p-60;

}  // namespace

void bind(Config& config, LossScaleOptions& options) {
  config.bind("loss_scale.initial", options.initial, "The initial loss scale of f16.",
              {.min = 0x1p-24, .max = 0x1p40});
  config
      .bind("loss_scale.growth_interval", options.growth_interval,
            "Steps without overflow after which the loss scale is doubled.", {.min = 1})
      .formerly("loss_scale.patience");
  config.bind("loss_scale.min", options.min,
              "The least loss scale: gradients of f16 that overflow even with it end the run.",
              {.min = 0x1p-24, .max = 0x1p40});
}

LossScale after_good_step(LossScale state, const LossScaleOptions& options) {
  if (++state.good_steps >= options.growth_interval) {
    state = {.scale = std::min(state.scale * 2, kLargest), .good_steps = 0};
  }
  return state;
}

LossScale after_overflow(LossScale state) {
  return {.scale = std::max(state.scale / 2, kSmallest), .good_steps = 0};
}

}  // namespace lockstep::optim
