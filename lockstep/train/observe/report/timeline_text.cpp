#include <fmt/format.h>

#include <algorithm>

#include "lockstep/train/observe/pipeline_bubble.h"
#include "lockstep/train/observe/report/timeline.h"

namespace lockstep::train {

std::string describe_timeline(const Timeline& timeline, std::span<const RankTrace> ranks) {
  std::string note;
  const auto bubbles = pipeline_bubbles(ranks);
  if (const auto bubble = bubbles.find(timeline.step); bubble != bubbles.end()) {
    note += fmt::format("The bubble of the pipeline was {:.1f}%. ", 100 * bubble->second);
  }
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

}  // namespace lockstep::train
