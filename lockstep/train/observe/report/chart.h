// A chart of curves over steps, as SVG inside a page.
//
// Colours, fonts and the size it is given come from the page's style sheet (style.h), by the
// classes axis, grid, tick and those of the curves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/observe/report/curve.h"

namespace lockstep::train {

struct ChartCurve {
  std::string name;
  std::string style;  // a class of the style sheet
  std::vector<CurvePoint> points;
  bool dots = false;  // a dot at each point
};

struct Chart {
  std::string title;
  std::vector<ChartCurve> curves;  // those behind first
  double first_step = 0;           // the ends of the axis
  double last_step = 1;
  bool from_zero = false;  // whether values begin at 0
  int width = 520;         // in pixels, before the page scales it
  int height = 230;
  bool shows_values = true;  // under the pointer, by the page's script
};

std::string draw_chart(const Chart& chart);

// Round numbers, equally far apart.
struct Ticks {
  double first = 0;
  double distance = 1;  // 1, 2 or 5 times a power of ten
  int count = 0;
  double at(int index) const { return first + index * distance; }
  double last() const { return at(count - 1); }
};
// About `wanted` ticks around low .. high: the first is at most `low`, the last at least `high`.
Ticks ticks_around(double low, double high, int wanted);
// A tick's number with as many digits as its neighbours need: "0.5", "12,000", "2e-05".
std::string tick_label(double value, double distance);

}  // namespace lockstep::train
