// Dynamic loss scaling: keeps f16 gradients within the range of f16.
//
// Small gradients vanish in f16, large ones overflow. So the loss, and with it every gradient, is
// multiplied by a scale that is as large as possible: a step whose gradients overflow is skipped
// and halves the scale; `growth_interval` good steps in a row double it. bf16 and f32 have enough
// range and a scale of 1.
#pragma once

#include <cstdint>

#include "lockstep/base/config/config.h"

namespace lockstep::optim {

struct LossScaleOptions {
  double initial = 65536;
  int growth_interval = 2000;
  double min = 0x1p-10;  // gradients that overflow even with it end the run
};

// Declares the keys loss_scale.*.
void bind(Config& config, LossScaleOptions& options);

// The state, which a checkpoint stores. Scales are powers of two times the initial one.
struct LossScale {
  double scale = 1;
  std::int64_t good_steps = 0;  // since the last overflow or doubling

  bool operator==(const LossScale&) const = default;
};

// What a step does to it.
LossScale after_good_step(LossScale state, const LossScaleOptions& options);
LossScale after_overflow(LossScale state);
// Whether an overflow has taken it below the least.
constexpr bool is_exhausted(const LossScale& state, const LossScaleOptions& options) {
  return state.scale < options.min;
}

}  // namespace lockstep::optim
