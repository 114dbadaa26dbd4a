// A picture of one step of a traced run: time runs to the right, with three rows per rank: compute,
// communication and waits. Communication below compute is hidden; waits are its cost.
//
// Colours come from the page's style sheet (style.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/observe/trace_file.h"

namespace lockstep::train {

// A colour and what it stands for.
struct TimelineColour {
  std::string_view style;  // a class of the style sheet
  std::string_view name;
};

struct Timeline {
  std::int64_t step = 0;
  double seconds = 0;        // from the first of its spans to the last
  double communication = 0;  // seconds of all ranks; 0: none
  double exposed = 0;        // of these, in which compute waited for it
  std::size_t ranks = 0;     // that there are; the first kMostRanks are drawn
  std::vector<TimelineColour> colours;
  std::string svg;

  static constexpr std::size_t kMostRanks = 16;
};

// Draws the middle one of the steps that all ranks share. Without such a step (asp, ssp), draws the
// time of a step of the first rank that has one. Nothing if none has.
std::optional<Timeline> draw_timeline(std::span<const RankTrace> ranks);

// What is to be said of it: the bubble of its pipeline, how much of the communication was hidden.
std::string describe_timeline(const Timeline& timeline, std::span<const RankTrace> ranks);

}  // namespace lockstep::train
