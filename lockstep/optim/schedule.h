// The learning rate of every step.
//
//   learning_rate |     ______                     warm-up: from learning_rate / warmup_steps in
//                 |    /      \__     cosine       equal steps to learning_rate; then constant, for
//                 |   /   \      \_                stable_steps or for ever; then a line or half a
//                 |  /       \     \____________   cosine down to min_lr_ratio * learning_rate at
//                 | /           \__/               decay_steps, where it stays (min_lr: that
//                 +-+----+-----------+---------> step                          minimum itself)
//                   1  warmup_steps  decay_steps
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/config/config.h"

namespace lockstep::optim {

enum class LearningRateDecay : std::uint8_t { kConstant, kLinear, kCosine };
std::string_view name(LearningRateDecay decay);  // "constant", "linear", "cosine"

struct ScheduleOptions {
  double learning_rate = 6e-4;
  int warmup_steps = 0;
  LearningRateDecay decay = LearningRateDecay::kConstant;
  int stable_steps = 0;       // between the warm-up and a decay
  int decay_steps = 0;        // the step at which a decay ends; needed by every decay but constant
  double min_lr_ratio = 0.1;  // where it ends, as a fraction of learning_rate
  double min_lr = 0;          // over 0: where it ends, instead of min_lr_ratio
};

// Declares the keys optimizer.learning_rate and schedule.*.
void bind(Config& config, ScheduleOptions& options);

// Throws Error(kInvalidArgument) for a decay that would end before it begins, and for a minimum
// above the learning rate.
void check(const ScheduleOptions& options);

// The learning rate of step 1, 2, ... A pure function, so that a resumed run continues exactly.
double learning_rate_at(const ScheduleOptions& options, std::int64_t step);

}  // namespace lockstep::optim
