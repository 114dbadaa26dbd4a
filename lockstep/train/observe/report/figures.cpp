#include "lockstep/train/observe/report/figures.h"

#include <cstdint>

namespace lockstep::train {
namespace {

constexpr std::int64_t kFewSteps = 50;  // are drawn as they are, not smoothed

// The step before the first: 0 is a round number.
double axis_begin(const RunHistory& history) { return static_cast<double>(history.first_step) - 1; }

}  // namespace

Chart loss_chart(const RunHistory& history) {
  constexpr std::size_t kMostDots = 100;
  Chart chart{.title = "Loss",
              .first_step = axis_begin(history),
              .last_step = static_cast<double>(history.last_step),
              .width = 1080,
              .height = 330};
  if (history.steps > kFewSteps) {
    chart.curves.push_back({"each step", "faint", history.loss.points()});
    chart.curves.push_back({"training, smoothed", "blue", history.smoothed_loss.points()});
  } else {
    chart.curves.push_back({"training", "blue", history.loss.points()});
  }
  if (history.last_validation) {
    const auto points = history.validation_loss.points();
    chart.curves.push_back({"validation", "orange", points, points.size() <= kMostDots});
  }
  return chart;
}

}  // namespace lockstep::train
