#include "lockstep/train/observe/report/run_picture.h"

#include <fmt/format.h>

#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/train/observe/report/figures.h"
#include "lockstep/train/observe/report/history.h"
#include "lockstep/train/observe/report/style.h"
#include "lockstep/train/observe/report/timeline.h"
#include "lockstep/train/observe/trace_file.h"

namespace lockstep::train {
namespace {

constexpr double kPictureWidth = 1080 + 2 * Drawing::kMargin;
constexpr std::string_view kSvgTag = "<svg ";

// A chart of a page, at a place of the picture. Returns its height.
double place_chart(Drawing& drawing, std::string_view svg, double y, double width, double height) {
  drawing.markup(fmt::format("{}x=\"{}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" {}",
                             kSvgTag, Drawing::kMargin, y, width, height,
                             svg.substr(kSvgTag.size())));
  return height;
}

std::string summary_of(const RunHistory& history) {
  std::string text =
      fmt::format("{} steps, {} tokens; the loss ends at {:.3f}",
                  format_count(static_cast<std::uint64_t>(history.last_step)),
                  format_count(static_cast<std::uint64_t>(history.tokens)), history.last_loss);
  if (history.best_validation) {
    text += fmt::format(", the best validation is {:.3f} at step {}", history.best_validation->loss,
                        format_count(static_cast<std::uint64_t>(history.best_validation->step)));
  }
  return text + ".";
}

// The height of what draw_timeline() made.
double height_of(std::string_view svg) {
  const auto box = svg.find("viewBox=\"");
  const auto end = svg.find('"', box + 9);
  const std::string_view numbers = svg.substr(box + 9, end - box - 9);
  return std::stod(std::string(numbers.substr(numbers.rfind(' ') + 1)));
}

}  // namespace

std::string draw_run(const std::filesystem::path& folder) {
  // How far steps are smoothed depends on how many there are.
  const std::int64_t steps = read_history(folder, 1, 1).history().last_step;
  const RunHistory history = read_history(folder, steps, 1).history();
  if (history.steps == 0) {
    fail(ErrorCode::kInvalidArgument, "{} has no recorded steps in metrics.jsonl", folder.string());
  }
  Drawing drawing(kPictureWidth, "A training run",
                  "The loss over the steps of a run, and one step as a timeline of its ranks.");
  drawing.rules(kChartRules);
  drawing.note(summary_of(history));
  Chart chart = loss_chart(history);
  chart.shows_values = false;
  std::vector<Drawing::Key> keys;
  for (const ChartCurve& curve : chart.curves) {
    keys.push_back({curve.style == "faint" ? "soft blue" : curve.style, curve.name});
  }
  double y = drawing.notes_end() + 28;
  drawing.text(Drawing::kMargin, y, "Loss", "strong");
  drawing.legend(Drawing::kMargin + 60, y, keys);
  y += 10;
  y += place_chart(drawing, draw_chart(chart), y, chart.width, chart.height);

  std::error_code none;
  if (std::filesystem::exists(trace_path(folder), none)) {
    if (const auto timeline = draw_timeline(read_trace(trace_path(folder)))) {
      y += 28;
      drawing.text(Drawing::kMargin, y, "One step", "strong");
      keys.clear();
      for (const TimelineColour& colour : timeline->colours) {
        keys.push_back({std::string(colour.style), std::string(colour.name)});
      }
      drawing.legend(Drawing::kMargin + 90, y, keys);
      y += 12;
      y += place_chart(drawing, timeline->svg, y, 1080, height_of(timeline->svg));
      drawing.text(
          kPictureWidth - Drawing::kMargin, y + 2,
          fmt::format("step {} on {}: {}", format_count(static_cast<std::uint64_t>(timeline->step)),
                      counted(timeline->ranks, "rank"), format_seconds(timeline->seconds)),
          "end small quiet");
      y += 10;
    }
  }
  return drawing.finish(y + 16);
}

}  // namespace lockstep::train
