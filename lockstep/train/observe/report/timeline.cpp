#include "lockstep/train/observe/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>

#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/units.h"
#include "lockstep/train/observe/report/chart.h"

namespace lockstep::train {
namespace {

using parallel::TraceLane;
using parallel::TraceSpan;

constexpr double kTimelineWidth = 1080;
constexpr double kTimelineLeft = 168;  // width of ranks' and lanes' names
constexpr double kTimelineRight = 16;
constexpr double kTimelineBottom = 30;  // height of the times
constexpr double kLanePitch = 21;
constexpr double kBarHeight = 17;
constexpr double kBetweenRanks = 13;
constexpr double kPixelsPerTimeTick = 110;
constexpr double kLetterWidth = 6.2;
constexpr double kThinBar = 0.6;  // pixels; neighbours of one colour become one bar
constexpr double kNanosecondsOfMillisecond = 1e6;

constexpr std::array kDrawnLanes = {TraceLane::kCompute, TraceLane::kCommunication,
                                    TraceLane::kWaiting};

TimelineColour colour_of(const TraceSpan& span) {
  if (span.lane == TraceLane::kCommunication) return {"orange", "communication"};
  if (span.lane == TraceLane::kWaiting) return {"rose", "waiting"};
  if (span.kind == "forward") return {"blue", "forward"};
  if (span.kind == "backward") return {"purple", "backward"};
  if (span.kind == "update") return {"teal", "update"};
  return {"grey", "other work"};
}

// From the first to the last of something.
struct TimeSpan {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = std::numeric_limits<std::int64_t>::min();

  void add(const TraceSpan& span) {
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  bool is_empty() const { return begin >= end; }
  TimeSpan common_with(const TimeSpan& other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

using StepTimes = std::map<std::int64_t, TimeSpan>;

// Steps that a rank has from end to end.
StepTimes step_times(const RankTrace& rank) {
  StepTimes steps;
  for (const TraceSpan& span : rank.spans) {
    if (span.lane == TraceLane::kStep) steps[span.step].add(span);
  }
  return steps;
}

// In order; and when all ranks were in it.
StepTimes steps_of_all(std::span<const RankTrace> ranks) {
  StepTimes common = step_times(ranks.front());
  for (const RankTrace& rank : ranks.subspan(1)) {
    const StepTimes its = step_times(rank);
    StepTimes both;
    for (const auto& [step, time] : common) {
      const auto same = its.find(step);
      if (same == its.end()) continue;
      const TimeSpan shared = time.common_with(same->second);
      if (!shared.is_empty()) both[step] = shared;
    }
    common = std::move(both);
  }
  return common;
}

// The spans that are drawn.
struct Scene {
  std::int64_t step = 0;
  std::vector<RankTrace> ranks;
};

// Validation and checkpoints come after a step: they are none of it.
bool is_of_step(const TraceSpan& span) {
  return span.lane != TraceLane::kStep && span.lane <= TraceLane::kWaiting &&
         span.kind != "validation" && span.kind != "checkpoint";
}

template <class Cut>
Scene scene_of(std::span<const RankTrace> ranks, std::int64_t step, Cut cut) {
  Scene scene{.step = step, .ranks = {}};
  for (const RankTrace& rank : ranks) {
    RankTrace& drawn = scene.ranks.emplace_back(RankTrace{.rank = rank.rank, .spans = {}});
    for (TraceSpan span : rank.spans) {
      if (is_of_step(span) && cut(span)) drawn.spans.push_back(std::move(span));
    }
  }
  return scene;
}

const auto& middle_of(const StepTimes& steps) {
  return *std::next(steps.begin(), static_cast<std::ptrdiff_t>(steps.size() / 2));
}

std::optional<Scene> choose_scene(std::span<const RankTrace> ranks) {
  if (ranks.empty()) return std::nullopt;
  if (const StepTimes common = steps_of_all(ranks); !common.empty()) {
    const std::int64_t step = middle_of(common).first;
    return scene_of(ranks, step, [&](const TraceSpan& span) { return span.step == step; });
  }
  StepTimes first;
  for (const RankTrace& rank : ranks) {
    if (first = step_times(rank); !first.empty()) break;
  }
  if (first.empty()) return std::nullopt;
  const auto& [step, time] = middle_of(first);
  return scene_of(ranks, step, [&](TraceSpan& span) {
    const TimeSpan part = time.common_with({span.begin, span.end});
    span.begin = part.begin;
    span.end = part.end;
    return !part.is_empty();
  });
}

struct TimelineFrame : TimeSpan {
  double height = 0;

  double milliseconds() const {
    return static_cast<double>(end - begin) / kNanosecondsOfMillisecond;
  }
  double x(std::int64_t time) const {
    return x_of(static_cast<double>(time - begin) / kNanosecondsOfMillisecond);
  }
  double x_of(double ms) const {
    return kTimelineLeft + ms / milliseconds() * (kTimelineWidth - kTimelineRight - kTimelineLeft);
  }
  double bottom() const { return height - kTimelineBottom; }
};

// A bar, and what it says under the pointer.
struct TimelineBar {
  double left = 0;
  double right = 0;
  TimelineColour colour;
  std::string label;
  std::string title;
  std::size_t spans = 1;
};

std::string title_of(const TraceSpan& span, const TimelineFrame& frame) {
  std::string title =
      fmt::format("{}\n{} from {}", span.name(),
                  format_seconds(static_cast<double>(span.end - span.begin) / 1e9),
                  format_seconds(static_cast<double>(span.begin - frame.begin) / 1e9));
  if (span.bytes > 0) {
    title += fmt::format("\n{} sent", format_bytes(static_cast<double>(span.bytes)));
  }
  return title;
}

double width_of(std::string_view text) {
  return kLetterWidth * static_cast<double>(text.size()) + 6;
}

// The colour already shows the kind of computing and communication.
std::string label_of(const TraceSpan& span, const TimelineFrame& frame) {
  const bool coloured = span.lane != TraceLane::kWaiting && !span.of.empty();
  const bool fits = width_of(span.name()) < frame.x(span.end) - frame.x(span.begin);
  return coloured || !fits ? span.of : span.name();
}

std::vector<TimelineBar> bars_of(const RankTrace& rank, TraceLane lane,
                                 const TimelineFrame& frame) {
  std::vector<TimelineBar> bars;
  for (const TraceSpan& span : rank.spans) {
    if (span.lane != lane) continue;
    TimelineBar bar{.left = frame.x(span.begin),
                    .right = frame.x(span.end),
                    .colour = colour_of(span),
                    .label = label_of(span, frame),
                    .title = title_of(span, frame)};
    if (!bars.empty()) {
      TimelineBar& last = bars.back();
      const bool thin = last.right - last.left < kThinBar && bar.right - bar.left < kThinBar;
      if (thin && last.colour.style == bar.colour.style && bar.left - last.right < kThinBar) {
        last.right = bar.right;
        last.title = fmt::format("{} of {}", ++last.spans, bar.colour.name);
        continue;
      }
    }
    bars.push_back(std::move(bar));
  }
  return bars;
}

std::string drawing_of(const TimelineBar& bar, double y) {
  constexpr double kLeast = 0.6;  // the least visible width
  const double width = std::max(bar.right - bar.left, kLeast);
  // A hair of the card between neighbours.
  const double drawn = width > 3 ? width - 0.8 : width;
  std::string drawing = fmt::format(
      "<g><title>{}</title><rect class=\"bar {}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
      "height=\"{}\" rx=\"{}\"/>",
      escape_markup(printable(bar.title)), bar.colour.style, bar.left, y, drawn, kBarHeight,
      width > 6 ? 2 : 0);
  if (!bar.label.empty() && width_of(bar.label) < width) {
    drawing +=
        fmt::format("<text class=\"inbar\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>",
                    bar.left + drawn / 2, y + kBarHeight - 5, escape_markup(printable(bar.label)));
  }
  return drawing + "</g>\n";
}

std::string grid_of(const TimelineFrame& frame) {
  const int wanted = static_cast<int>((kTimelineWidth - kTimelineLeft) / kPixelsPerTimeTick);
  const Ticks ticks = ticks_around(0, frame.milliseconds(), wanted);
  std::string grid;
  for (int i = 0; i < ticks.count; ++i) {
    const double ms = ticks.at(i);
    if (ms > frame.milliseconds()) break;
    fmt::format_to(std::back_inserter(grid),
                   "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/>"
                   "<text class=\"tick step\" x=\"{0:.1f}\" y=\"{2:.1f}\">{3}</text>\n",
                   frame.x_of(ms), frame.bottom(), frame.bottom() + 18,
                   tick_label(ms, ticks.distance) + (i == 0 ? " ms" : ""));
  }
  return grid;
}

std::string rows_of(const RankTrace& rank, double top, const TimelineFrame& frame) {
  std::string rows = fmt::format("<text class=\"rank\" x=\"0\" y=\"{:.1f}\">rank {}</text>\n",
                                 top + kBarHeight - 4, rank.rank);
  for (std::size_t i = 0; i < kDrawnLanes.size(); ++i) {
    const double y = top + static_cast<double>(i) * kLanePitch;
    fmt::format_to(std::back_inserter(rows),
                   "<text class=\"tick value\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                   kTimelineLeft - 10, y + kBarHeight - 4.5, name(kDrawnLanes[i]));
    for (const TimelineBar& bar : bars_of(rank, kDrawnLanes[i], frame)) {
      rows += drawing_of(bar, y);
    }
  }
  return rows;
}

}  // namespace

std::optional<Timeline> draw_timeline(std::span<const RankTrace> ranks) {
  const auto scene = choose_scene(ranks);
  if (!scene) return std::nullopt;
  constexpr std::string_view kOrder[] = {"forward",    "backward",      "update",
                                         "other work", "communication", "waiting"};
  Timeline timeline{.step = scene->step, .ranks = ranks.size(), .colours = {}, .svg = {}};
  TimelineFrame frame;
  std::array<std::optional<TimelineColour>, std::size(kOrder)> colours;
  for (const RankTrace& rank : scene->ranks) {
    for (const TraceSpan& span : rank.spans) {
      frame.add(span);
      const TimelineColour colour = colour_of(span);
      const auto place = std::ranges::find(kOrder, colour.name) - std::begin(kOrder);
      colours[static_cast<std::size_t>(place)] = colour;
      const double seconds = static_cast<double>(span.end - span.begin) / 1e9;
      const bool waits = span.lane == TraceLane::kWaiting;
      const bool agrees = waits && span.kind == "agree";  // only this lane has it
      if (span.lane == TraceLane::kCommunication || agrees) timeline.communication += seconds;
      if (agrees || (waits && span.kind == "wait for")) timeline.exposed += seconds;
    }
  }
  if (frame.is_empty()) return std::nullopt;
  for (const auto& colour : colours) {
    if (colour) timeline.colours.push_back(*colour);
  }
  timeline.seconds = static_cast<double>(frame.end - frame.begin) / 1e9;

  const auto drawn = std::span(scene->ranks).first(std::min(ranks.size(), Timeline::kMostRanks));
  const double rank_height = kLanePitch * static_cast<double>(kDrawnLanes.size()) + kBetweenRanks;
  frame.height = rank_height * static_cast<double>(drawn.size()) + kTimelineBottom;
  timeline.svg = fmt::format(
      "<svg class=\"chart timeline\" viewBox=\"0 0 {} {:.0f}\" role=\"img\" "
      "aria-label=\"Timeline of step {}\">\n",
      kTimelineWidth, frame.height, scene->step);
  timeline.svg += grid_of(frame);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const double top = static_cast<double>(i) * rank_height;
    if (i > 0) {
      timeline.svg += fmt::format(
          "<line class=\"axis between\" x1=\"0\" x2=\"{0}\" y1=\"{1:.1f}\" y2=\"{1:.1f}\"/>\n",
          kTimelineWidth - kTimelineRight, top - (kBetweenRanks + kLanePitch - kBarHeight) / 2);
    }
    timeline.svg += rows_of(drawn[i], top, frame);
  }
  timeline.svg += "</svg>\n";
  return timeline;
}

}  // namespace lockstep::train
