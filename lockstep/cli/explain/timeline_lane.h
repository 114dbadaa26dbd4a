// Spans of time on a lane of a picture: what a timeline of `lockstep explain` is made of.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/text/drawing.h"

namespace lockstep::cli {

struct LaneSpan {
  double begin = 0;  // seconds
  double end = 0;
  std::string label;  // written where it fits
  std::string style;  // of the box
  std::string ink = "tiny on";
};

struct TimeAxis {
  double left = 0;
  double right = 0;
  double seconds = 1;
  double x(double time) const { return left + (right - left) * time / seconds; }
};

void draw_lane(Drawing& drawing, const TimeAxis& axis, double y, double height,
               const std::string& name, const std::vector<LaneSpan>& spans);
// Ticks below, at round numbers of milliseconds.
void draw_time_axis(Drawing& drawing, const TimeAxis& axis, double top, double bottom);

}  // namespace lockstep::cli
