#include "lockstep/train/observe/report/report_timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/train/observe/report/timeline.h"

namespace lockstep::train {
namespace {

std::string note_of(const Timeline& timeline) {
  std::string note;
  if (timeline.communication > 0) {
    const double hidden = std::clamp(1 - timeline.exposed / timeline.communication, 0.0, 1.0);
    note += fmt::format("{:.0f}% of the communication went on while the ranks computed. ",
                        100 * hidden);
  }
  if (timeline.ranks > Timeline::kMostRanks) {
    note += fmt::format("{} of {} ranks are drawn; all are in the trace. ", Timeline::kMostRanks,
                        timeline.ranks);
  }
  return note;
}

}  // namespace

std::string timeline_section(std::span<const RankTrace> ranks) {
  const auto timeline = draw_timeline(ranks);
  if (!timeline) return "";
  std::string legend;
  for (const TimelineColour& colour : timeline->colours) {
    legend += fmt::format("<span><i class=\"{}\"></i>{}</span>", colour.style, colour.name);
  }
  return fmt::format(
      "<figure class=\"card wide\"><div class=\"head\"><h2>One step</h2><span class=\"unit\">step "
      "{}, {}</span><span class=\"legend\">{}</span></div>\n<div class=\"scroll\">{}</div>\n"
      "<p class=\"note\">{}</p></figure>\n",
      format_count(static_cast<std::uint64_t>(timeline->step)), format_seconds(timeline->seconds),
      legend, timeline->svg, note_of(*timeline));
}

}  // namespace lockstep::train
