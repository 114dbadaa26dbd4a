#include "lockstep/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

constexpr std::string_view kDeclineNames[] = {"constant", "linear", "cosine"};

}  // namespace

std::string_view name(Decline decline) { return kDeclineNames[static_cast<std::size_t>(decline)]; }

void bind(Config& config, ScheduleOptions& options) {
  config.bind("schedule.rate", options.rate, "The learning rate after the warm-up.", {.min = 0});
  config.bind("schedule.warmup", options.warmup,
              "Steps in which the learning rate rises evenly from zero.", {.min = 0});
  config.bind("schedule.decline", options.decline, kDeclineNames,
              "How the learning rate goes down after the warm-up.");
  config.bind("schedule.steps", options.steps,
              "The step at which the learning rate has come down to its floor; 0: train.steps.",
              {.min = 0});
  config.bind("schedule.floor", options.floor,
              "The fraction of the learning rate that it comes down to.", {.min = 0, .max = 1});
}

void check(const ScheduleOptions& options) {
  if (options.decline != Decline::kConstant && options.steps <= options.warmup) {
    fail(ErrorCode::kInvalidArgument,
         "schedule.decline = \"{}\" goes on until step schedule.steps = {}, which must come after "
         "the warm-up of {}; take more steps or a smaller schedule.warmup",
         name(options.decline), options.steps, options.warmup);
  }
}

double rate_at(const ScheduleOptions& options, std::int64_t step) {
  if (step < options.warmup) {
    return options.rate * static_cast<double>(step) / options.warmup;
  }
  if (options.decline == Decline::kConstant) return options.rate;
  if (step >= options.steps) return options.rate * options.floor;
  const double way = static_cast<double>(step - options.warmup) /
                     static_cast<double>(options.steps - options.warmup);
  const double above_floor =
      options.decline == Decline::kLinear ? 1 - way : (1 + std::cos(std::numbers::pi * way)) / 2;
  return options.rate * (options.floor + (1 - options.floor) * above_floor);
}

}  // namespace lockstep::optim
