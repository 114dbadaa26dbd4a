#include "lockstep/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

constexpr std::string_view kDecayNames[] = {"constant", "linear", "cosine"};

// The last step before the decay.
std::int64_t decays_after(const ScheduleOptions& options) {
  return std::int64_t{options.warmup_steps} + options.stable_steps;
}

}  // namespace

std::string_view name(LearningRateDecay decay) {
  return kDecayNames[static_cast<std::size_t>(decay)];
}

void bind(Config& config, ScheduleOptions& options) {
  config
      .bind("optimizer.learning_rate", options.learning_rate,
            "The learning rate after the warm-up.", {.min = 0})
      .formerly("schedule.rate");
  config
      .bind("schedule.warmup_steps", options.warmup_steps,
            "Steps of warm-up, in which the learning rate rises linearly from zero.", {.min = 0})
      .formerly("schedule.warmup");
  config
      .bind("schedule.decay", options.decay, kDecayNames,
            "How the learning rate decreases after the warm-up.")
      .formerly("schedule.decline");
  config.bind("schedule.stable_steps", options.stable_steps,
              "Steps between the warm-up and the decay, at the full learning rate "
              "(warmup-stable-decay).",
              {.min = 0});
  config
      .bind("schedule.decay_steps", options.decay_steps,
            "The step at which the learning rate reaches its minimum; 0: train.steps.", {.min = 0})
      .formerly("schedule.steps");
  config
      .bind("schedule.min_lr_ratio", options.min_lr_ratio,
            "The minimum, as a fraction of optimizer.learning_rate.", {.min = 0, .max = 1})
      .formerly("schedule.floor");
  config.bind("schedule.min_lr", options.min_lr,
              "The minimum as a learning rate, instead of schedule.min_lr_ratio; 0: the ratio "
              "counts.",
              {.min = 0});
}

void check(const ScheduleOptions& options) {
  const bool decays = options.decay != LearningRateDecay::kConstant;
  if (decays && options.decay_steps <= options.warmup_steps) {
    fail(ErrorCode::kInvalidArgument,
         "schedule.decay = \"{}\" ends at step schedule.decay_steps = {}, before the warm-up ends "
         "at step schedule.warmup_steps = {}. Train for more steps, or lower schedule.warmup_steps",
         name(options.decay), options.decay_steps, options.warmup_steps);
  }
  if (decays && options.decay_steps <= decays_after(options)) {
    fail(ErrorCode::kInvalidArgument,
         "schedule.decay = \"{}\" ends at step schedule.decay_steps = {}, but {} steps of warm-up "
         "and schedule.stable_steps = {} come before it. Train for more steps, or lower "
         "schedule.stable_steps",
         name(options.decay), options.decay_steps, options.warmup_steps, options.stable_steps);
  }
  if (options.min_lr > options.learning_rate) {
    fail(ErrorCode::kInvalidArgument,
         "schedule.min_lr = {:g} is above optimizer.learning_rate = {:g}, from which the rate "
         "decays; lower it",
         options.min_lr, options.learning_rate);
  }
}

double learning_rate_at(const ScheduleOptions& options, std::int64_t step) {
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step) / options.warmup_steps;
  }
  const std::int64_t stable_until = decays_after(options);
  if (options.decay == LearningRateDecay::kConstant || step < stable_until) {
    return options.learning_rate;
  }
  const double minimum =
      options.min_lr > 0 ? options.min_lr : options.learning_rate * options.min_lr_ratio;
  if (step >= options.decay_steps) return minimum;
  const double way = static_cast<double>(step - stable_until) /
                     static_cast<double>(options.decay_steps - stable_until);
  const double above_minimum = options.decay == LearningRateDecay::kLinear
                                   ? 1 - way
                                   : (1 + std::cos(std::numbers::pi * way)) / 2;
  if (options.min_lr > 0) return minimum + (options.learning_rate - minimum) * above_minimum;
  return options.learning_rate *
         (options.min_lr_ratio + (1 - options.min_lr_ratio) * above_minimum);
}

}  // namespace lockstep::optim
