#include "lockstep/cli/explain/timeline_lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/train/observe/report/chart.h"

namespace lockstep::cli {

void draw_lane(Drawing& drawing, const TimeAxis& axis, double y, double height,
               const std::string& name, const std::vector<LaneSpan>& spans) {
  drawing.text(axis.left - 12, y + height / 2 + 4, name, "end small quiet");
  drawing.box({axis.left, y, axis.right - axis.left, height}, "band", 2);
  for (const LaneSpan& span : spans) {
    const double x = axis.x(span.begin);
    const double width = std::max(axis.x(span.end) - x, 0.6);
    // A hair between neighbours.
    const Drawing::Area area{x, y, width > 3 ? width - 0.8 : width, height};
    drawing.box(area, span.style, width > 6 ? 2 : 0);
    if (span.label.empty() || drawing.label(area, span.label, span.ink)) continue;
    drawing.label(area, span.label.substr(span.label.rfind('.') + 1), span.ink);  // "3" of layer.3
  }
}

void draw_time_axis(Drawing& drawing, const TimeAxis& axis, double top, double bottom) {
  constexpr int kWanted = 8;
  const double milliseconds = axis.seconds * 1e3;
  const train::Ticks ticks = train::ticks_around(0, milliseconds, kWanted);
  for (int i = 0; i < ticks.count; ++i) {
    if (ticks.at(i) > milliseconds) break;
    const double x = axis.x(ticks.at(i) / 1e3);
    drawing.line({x, top}, {x, bottom}, "line-grid");
    drawing.text(
        x, bottom + 15,
        fmt::format("{}{}", train::tick_label(ticks.at(i), ticks.distance), i == 0 ? " ms" : ""),
        "middle small quiet");
  }
}

}  // namespace lockstep::cli
