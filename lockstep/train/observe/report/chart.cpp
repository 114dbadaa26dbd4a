#include "lockstep/train/observe/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/number.h"

namespace lockstep::train {
namespace {

constexpr double kChartLeft = 58;   // width of the values' labels
constexpr double kChartRight = 22;  // half a label
constexpr double kChartTop = 10;
constexpr double kChartBottom = 26;  // height of the steps' labels
constexpr double kPixelsPerStepTick = 80;
constexpr double kPixelsPerValueTick = 40;

struct ValueRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// From steps and values to places in the drawing.
struct Frame {
  double width, height;
  double first_step, last_step;
  double low, high;
  double right() const { return width - kChartRight; }
  double bottom() const { return height - kChartBottom; }
  double x(double step) const {
    return kChartLeft + (step - first_step) / (last_step - first_step) * (right() - kChartLeft);
  }
  double y(double value) const {
    return bottom() - (value - low) / (high - low) * (bottom() - kChartTop);
  }
};

std::string path_of(const std::vector<CurvePoint>& points, const Frame& frame) {
  std::string path;
  bool inside = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const CurvePoint& point = points[i];
    if (std::isnan(point.value)) {
      inside = false;
      continue;
    }
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", inside ? 'L' : 'M',
                   frame.x(point.step), frame.y(point.value));
    // A point between two gaps would be a line of no length, which is not drawn.
    const bool alone = !inside && (i + 1 == points.size() || std::isnan(points[i + 1].value));
    if (alone) path += "h.01";
    inside = true;
  }
  return path;
}

std::string drawing_of(const ChartCurve& curve, const Frame& frame) {
  std::string drawing = fmt::format("<path class=\"curve {}\" d=\"{}\"/>\n",
                                    escape_markup(curve.style), path_of(curve.points, frame));
  if (!curve.dots) return drawing;
  for (const CurvePoint& point : curve.points) {
    if (std::isnan(point.value)) continue;
    drawing += fmt::format("<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>\n",
                           escape_markup(curve.style), frame.x(point.step), frame.y(point.value));
  }
  return drawing;
}

// What the page's script shows under the pointer: the name and the points of each curve.
std::string values_of(const std::vector<ChartCurve>& curves) {
  std::string json = "[";
  for (const ChartCurve& curve : curves) {
    std::string steps, values;
    for (const CurvePoint& point : curve.points) {
      if (std::isnan(point.value)) continue;
      const std::string_view comma = steps.empty() ? "" : ",";
      fmt::format_to(std::back_inserter(steps), "{}{}", comma, point.step);
      fmt::format_to(std::back_inserter(values), "{}{:.5g}", comma, point.value);
    }
    fmt::format_to(std::back_inserter(json), "{}[\"{}\",[{}],[{}]]", json.size() > 1 ? "," : "",
                   curve.name, steps, values);
  }
  return json + "]";
}

std::string grid_of(const Frame& frame, const Ticks& values) {
  std::string grid;
  for (int i = 0; i < values.count; ++i) {
    const double y = frame.y(values.at(i));
    fmt::format_to(std::back_inserter(grid),
                   "<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                   "<text class=\"tick value\" x=\"{}\" y=\"{:.1f}\">{}</text>\n",
                   i == 0 ? "axis" : "grid", kChartLeft, frame.right(), y, y, kChartLeft - 8, y + 4,
                   tick_label(values.at(i), values.distance));
  }
  const int wanted = static_cast<int>((frame.right() - kChartLeft) / kPixelsPerStepTick);
  Ticks steps = ticks_around(frame.first_step, frame.last_step, std::max(wanted, 1));
  if (steps.distance < 1) steps = ticks_around(frame.first_step, frame.last_step, 1);
  for (int i = 0; i < steps.count; ++i) {
    const double step = steps.at(i);
    if (step < frame.first_step || step > frame.last_step) continue;
    fmt::format_to(std::back_inserter(grid),
                   "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
                   "<text class=\"tick step\" x=\"{0:.1f}\" y=\"{3}\">{4}</text>\n",
                   frame.x(step), frame.bottom(), frame.bottom() + 4, frame.bottom() + 18,
                   tick_label(step, steps.distance));
  }
  return grid;
}

}  // namespace

Ticks ticks_around(double low, double high, int wanted) {
  if (!(high > low)) {
    const double margin = low == 0 ? 1 : std::abs(low) / 10;
    low -= margin;
    high += margin;
  }
  const double raw = (high - low) / wanted;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  // The round number that is nearest by its ratio.
  const double leading = raw / power;
  const double factor = leading < std::sqrt(2)    ? 1
                        : leading < std::sqrt(10) ? 2
                        : leading < std::sqrt(50) ? 5
                                                  : 10;
  Ticks ticks;
  ticks.distance = factor * power;
  const double first = std::floor(low / ticks.distance + 1e-9);
  const double last = std::ceil(high / ticks.distance - 1e-9);
  ticks.first = first * ticks.distance;
  ticks.count = static_cast<int>(last - first) + 1;
  return ticks;
}

std::string tick_label(double value, double distance) {
  constexpr double kLongest = 1e6;
  if (std::abs(value) < distance / 2) return "0";
  if (distance < 1e-4) return fmt::format("{:.3g}", value);
  std::string sign = value < 0 ? "-" : "";
  if (std::abs(value) >= kLongest) {
    sign += format_si(std::abs(value), "");
    return sign;
  }
  if (distance >= 1) {
    const auto whole = static_cast<std::uint64_t>(std::llround(std::abs(value)));
    sign += format_count(whole);
    return sign;
  }
  const int decimals = static_cast<int>(std::ceil(-std::log10(distance) - 1e-9));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string draw_chart(const Chart& chart) {
  ValueRange values;
  for (const ChartCurve& curve : chart.curves) {
    for (const CurvePoint& point : curve.points) {
      if (!std::isnan(point.value)) values.include(point.value);
    }
  }
  if (values.empty()) return "<p class=\"none\">Nothing was measured.</p>\n";
  if (chart.from_zero) values.include(0);
  const int wanted =
      static_cast<int>((chart.height - kChartTop - kChartBottom) / kPixelsPerValueTick);
  const Ticks ticks = ticks_around(values.low, values.high, std::max(wanted, 1));
  const Frame frame{.width = static_cast<double>(chart.width),
                    .height = static_cast<double>(chart.height),
                    .first_step = chart.first_step,
                    .last_step = std::max(chart.last_step, chart.first_step + 1),
                    .low = ticks.first,
                    .high = ticks.last()};
  std::string svg =
      fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"",
                  chart.width, chart.height, escape_markup(chart.title));
  if (chart.shows_values) {
    svg +=
        fmt::format(" data-frame=\"[{},{},{},{}]\" data-curves=\"{}\"", kChartLeft, frame.right(),
                    frame.first_step, frame.last_step, escape_markup(values_of(chart.curves)));
  }
  svg += ">\n" + grid_of(frame, ticks);
  for (const ChartCurve& curve : chart.curves) svg += drawing_of(curve, frame);
  if (chart.shows_values) {
    svg += fmt::format("<line class=\"pointer\" x1=\"0\" x2=\"0\" y1=\"{}\" y2=\"{}\"/>\n",
                       kChartTop, frame.bottom());
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace lockstep::train
