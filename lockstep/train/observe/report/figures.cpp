#include "lockstep/train/observe/report/figures.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace lockstep::train {
namespace {

constexpr std::int64_t kFewSteps = 50;  // are drawn as they are, not smoothed

std::string figure(const Chart& chart, std::string_view size, std::string_view unit) {
  std::string legend;
  if (chart.curves.size() > 1) {
    legend = "<span class=\"legend\">";
    for (const ChartCurve& curve : chart.curves) {
      legend += fmt::format("<span><i class=\"{}\"></i>{}</span>", curve.style, curve.name);
    }
    legend += "</span>";
  }
  return fmt::format(
      "<figure class=\"card {}\"><div class=\"head\"><h2>{}</h2><span class=\"unit\">{}</span>{}"
      "</div>\n<div class=\"scroll\">{}</div></figure>\n",
      size, chart.title, unit, legend, draw_chart(chart));
}

// The step before the first: 0 is a round number.
double axis_begin(const RunHistory& history) { return static_cast<double>(history.first_step) - 1; }

// Where the time of steps goes that several workers share.
std::string workers_figure(const RunHistory& history) {
  const Chart chart{
      .title = "Workers",
      .curves = {{"computing", "blue", history.compute.points()},
                 {"communication under way", "orange", history.communication.points()},
                 {"waiting for it", "rose", history.exposed.points()}},
      .first_step = axis_begin(history),
      .last_step = static_cast<double>(history.last_step),
      .from_zero = true,
      .width = 1080,
      .height = 240};
  return figure(chart, "wide", "ms a step");
}

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

std::string figure_sections(const RunHistory& history) {
  // Three in a row, or four in two.
  const auto small = [&](const char* title, const char* style, const char* name, const char* unit,
                         const CurveBuilder& curve) {
    const Chart chart{.title = title,
                      .curves = {{name, style, curve.points()}},
                      .first_step = axis_begin(history),
                      .last_step = static_cast<double>(history.last_step),
                      .from_zero = true,
                      .width = history.scaled ? 500 : 330,
                      .height = 220};
    return figure(chart, history.scaled ? "half" : "third", unit);
  };
  std::string figures = figure(loss_chart(history), "wide", "");
  figures += small("Throughput", "teal", "tokens/s", "tokens/s", history.tokens_per_second);
  const bool none_took_it =
      history.gradient_norm.points().empty() && !history.loss.points().empty();
  if (!none_took_it) {
    figures += small("Gradient norm", "purple", "norm", "before clipping", history.gradient_norm);
  }
  figures += small("Learning rate", "blue", "rate", "", history.rate);
  if (history.scaled) figures += small("Loss scale", "orange", "scale", "", history.loss_scale);
  if (history.shared_steps > 0) figures += workers_figure(history);
  return figures;
}

}  // namespace lockstep::train
