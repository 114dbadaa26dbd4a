#include "lockstep/cli/explain/pipeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lockstep/base/text/drawing.h"
#include "lockstep/cli/explain/timeline_lane.h"

namespace lockstep::cli {
namespace {

using plan::Action;
using plan::ActionKind;
using plan::PipelineShape;

constexpr int kMostTextColumns = 200;
constexpr double kLaneHeight = 26;
constexpr double kLaneGap = 5;
constexpr double kTimetableHead = 34;

bool computes(const Action& action) {
  return !plan::is_message(action.kind) && action.kind != ActionKind::kUpdate;
}

// "3" with what distinguishes it on its stage: "3b" in chunk 1, "3.2" in slice 2.
std::string micro_batch_label(const PipelineShape& shape, const Action& action) {
  std::string label = fmt::to_string(action.micro_batch);
  if (shape.chunks > 1) label += static_cast<char>('a' + action.chunk % 26);
  if (shape.slices > 1) label += fmt::format(".{}", action.slice);
  return label;
}

char letter_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return 'F';
  return kind == ActionKind::kBackwardWeight ? 'W' : 'B';
}

// The longest unit of time that all computations are multiples of, or nearly so.
double column_time(const TimedSchedule& timed) {
  double shortest = timed.table.end;
  for (std::size_t stage = 0; stage < timed.schedule.stages.size(); ++stage) {
    for (std::size_t i = 0; i < timed.schedule.stages[stage].size(); ++i) {
      if (!computes(timed.schedule.stages[stage][i])) continue;
      const plan::ActionSpan span = timed.table.stages[stage][i];
      shortest = std::min(shortest, span.end - span.begin);
    }
  }
  const auto fits = [&](double unit) {
    for (const auto& spans : timed.table.stages) {
      for (const plan::ActionSpan& span : spans) {
        const double columns = span.end / unit;
        if (std::abs(columns - std::round(columns)) > 1e-6) return false;
      }
    }
    return true;
  };
  constexpr int kFinest = 4;
  for (int part = 1; part <= kFinest; ++part) {
    if (fits(shortest / part)) return shortest / part;
  }
  return shortest / kFinest;
}

std::string_view colour_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return "blue";
  return kind == ActionKind::kBackwardWeight ? "teal" : "orange";
}

std::vector<LaneSpan> lane_of(const TimedSchedule& timed, std::size_t stage) {
  std::vector<LaneSpan> spans;
  for (std::size_t i = 0; i < timed.schedule.stages[stage].size(); ++i) {
    const Action& action = timed.schedule.stages[stage][i];
    if (!computes(action)) continue;
    const plan::ActionSpan span = timed.table.stages[stage][i];
    // Neighbouring chunks and batches differ.
    const bool pale = (action.chunk + timed.schedule.shape.batch_of(action.micro_batch)) % 2 == 1;
    // The shade distinguishes two chunks.
    std::string label = micro_batch_label(timed.schedule.shape, action);
    if (timed.schedule.shape.chunks == 2) label.pop_back();
    spans.push_back({span.begin, span.end, label,
                     fmt::format("{}{}", pale ? "soft " : "", colour_of(action.kind)),
                     pale ? "tiny" : "tiny on"});
  }
  return spans;
}

double lane_y(double top, std::size_t stage) {
  return top + static_cast<double>(stage) * (kLaneHeight + kLaneGap);
}

// Messages that take time, as lines from stage to stage.
void draw_messages(Drawing& drawing, const TimeAxis& axis, double top, const TimedSchedule& timed) {
  for (std::size_t stage = 0; stage < timed.schedule.stages.size(); ++stage) {
    for (std::size_t i = 0; i < timed.schedule.stages[stage].size(); ++i) {
      const Action& action = timed.schedule.stages[stage][i];
      const plan::ActionSpan span = timed.table.stages[stage][i];
      if (!plan::is_send(action.kind) || span.end <= span.begin) continue;
      const auto peer = static_cast<std::size_t>(action.peer);
      const double from = lane_y(top, stage) + (peer > stage ? kLaneHeight : 0);
      const double to = lane_y(top, peer) + (peer > stage ? 0 : kLaneHeight);
      drawing.line({axis.x(span.begin), from}, {axis.x(span.end), to}, "line-axis");
    }
  }
}

void draw_updates(Drawing& drawing, const TimeAxis& axis, double top, const TimedSchedule& timed) {
  for (std::size_t stage = 0; stage < timed.schedule.stages.size(); ++stage) {
    for (std::size_t i = 0; i < timed.schedule.stages[stage].size(); ++i) {
      if (timed.schedule.stages[stage][i].kind != ActionKind::kUpdate) continue;
      const double x = axis.x(timed.table.stages[stage][i].end);
      drawing.box({x - 1.5, lane_y(top, stage) - 2, 3, kLaneHeight + 4}, "purple", 1);
    }
  }
}

std::string held_text(const TimedSchedule& timed, std::size_t stage) {
  const PipelineShape& shape = timed.schedule.shape;
  return fmt::format("holds {:.3g}",
                     timed.counts.stash[stage] / static_cast<double>(shape.chunks * shape.slices));
}

double draw_timetable(Drawing& drawing, const TimeAxis& axis, double y,
                      const TimedSchedule& timed) {
  const double bubble = timed.table.bubble();
  const double free_bubble = timed.table.bubble_without_barrier();
  std::string facts = fmt::format("bubble {}", percent(bubble));
  if (free_bubble < bubble - 1e-9) {
    facts += fmt::format(", {} without a barrier", percent(free_bubble));
  }
  facts += fmt::format("; {} messages", timed.counts.messages());
  drawing.text(Drawing::kMargin, y + 18, timed.schedule.name, "strong");
  const double name_end = Drawing::kMargin + Drawing::text_width(timed.schedule.name);
  drawing.text(std::max(axis.left, name_end + 14), y + 18, facts, "small quiet");
  const double top = y + kTimetableHead;
  for (std::size_t stage = 0; stage < timed.schedule.stages.size(); ++stage) {
    draw_lane(drawing, axis, lane_y(top, stage), kLaneHeight, fmt::format("stage {}", stage),
              lane_of(timed, stage));
    drawing.text(axis.right + 12, lane_y(top, stage) + kLaneHeight / 2 + 4, held_text(timed, stage),
                 "small quiet");
  }
  draw_messages(drawing, axis, top, timed);
  draw_updates(drawing, axis, top, timed);
  return lane_y(top, timed.schedule.stages.size()) + 16;
}

bool any_action(const std::vector<TimedSchedule>& schedules, ActionKind kind) {
  return std::ranges::any_of(schedules, [&](const TimedSchedule& timed) {
    return std::ranges::any_of(timed.schedule.stages[0],
                               [&](const Action& action) { return action.kind == kind; });
  });
}

std::vector<Drawing::Key> keys_of(const std::vector<TimedSchedule>& schedules) {
  std::vector<Drawing::Key> keys = {{"blue", "forward"}};
  const bool whole = any_action(schedules, ActionKind::kBackward);
  const bool split = any_action(schedules, ActionKind::kBackwardWeight);
  if (whole && split) keys.push_back({"orange", "backward, or its input gradient"});
  if (whole && !split) keys.push_back({"orange", "backward"});
  if (!whole) keys.push_back({"orange", "input gradient"});
  if (split) keys.push_back({"teal", "weight gradient"});
  keys.push_back({"purple", "update"});
  keys.push_back({"band", "waits"});
  return keys;
}

// What else labels and shades say.
std::string meaning_of_parts(const std::vector<TimedSchedule>& schedules) {
  const auto any = [&](int PipelineShape::*count) {
    return std::ranges::any_of(
        schedules, [&](const TimedSchedule& timed) { return timed.schedule.shape.*count > 1; });
  };
  std::string text;
  if (any(&PipelineShape::slices)) text += " 1.2 is slice 2 of micro-batch 1.";
  if (any(&PipelineShape::chunks)) text += " Pale boxes are every second chunk of a stage.";
  if (any(&PipelineShape::batches)) text += " Pale boxes are every second batch.";
  return text;
}

}  // namespace

std::string percent(double part) {
  // What is zero but for rounding has no sign.
  const double hundredths = std::abs(part) < 1e-9 ? 0 : 100 * part;
  return hundredths < 1000 ? fmt::format("{:.3g} %", hundredths)
                           : fmt::format("{:.0f} %", hundredths);
}

std::string timetable_text(const TimedSchedule& timed) {
  const PipelineShape& shape = timed.schedule.shape;
  const double unit = column_time(timed);
  const auto columns = static_cast<int>(std::lround(timed.table.end / unit));
  Action longest;
  longest.micro_batch = shape.all_micro_batches() - 1;
  longest.slice = shape.slices - 1;
  const std::size_t width = 1 + micro_batch_label(shape, longest).size();
  if (static_cast<std::size_t>(columns) * (width + 1) > kMostTextColumns) return "";
  std::string text;
  for (std::size_t stage = 0; stage < timed.schedule.stages.size(); ++stage) {
    std::vector<std::string> cells(static_cast<std::size_t>(columns), ".");
    for (std::size_t i = 0; i < timed.schedule.stages[stage].size(); ++i) {
      const Action& action = timed.schedule.stages[stage][i];
      if (!computes(action)) continue;
      const plan::ActionSpan span = timed.table.stages[stage][i];
      const auto first = static_cast<std::size_t>(std::lround(span.begin / unit));
      const auto end =
          std::min(static_cast<std::size_t>(std::lround(span.end / unit)), cells.size());
      for (std::size_t at = first; at < end; ++at) cells[at] = std::string(width, '-');
      if (first < end) cells[first] = letter_of(action.kind) + micro_batch_label(shape, action);
    }
    std::string line = fmt::format("  stage {:<3}", stage);
    for (const std::string& cell : cells) line += fmt::format("{:<{}}", cell, width + 1);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string draw_timetables(const std::vector<TimedSchedule>& schedules, const std::string& note) {
  constexpr double kWidth = 1000;
  double end = 0;
  for (const TimedSchedule& timed : schedules) end = std::max(end, timed.table.end);
  const TimeAxis axis{120, kWidth - 100, end};
  std::vector<std::string> names;
  for (const TimedSchedule& timed : schedules) names.push_back(timed.schedule.name);
  Drawing drawing(
      kWidth, fmt::format("A step through pipeline stages: {}", fmt::join(names, ", ")),
      "A row for every stage and time to the right: which micro-batch the stage computes "
      "forward or backward, where it waits, and when it updates.");
  drawing.note(note);
  drawing.note(fmt::format(
      "Numbers are micro-batches.{} A stage holds the activations of micro-batches between their "
      "forward and the end of their backward; on the right, how many at most.",
      meaning_of_parts(schedules)));
  drawing.legend(Drawing::kMargin, drawing.notes_end() + 26, keys_of(schedules));
  double y = drawing.notes_end() + 40;
  for (const TimedSchedule& timed : schedules) y = draw_timetable(drawing, axis, y, timed);
  return drawing.finish(y + 6);
}

}  // namespace lockstep::cli
