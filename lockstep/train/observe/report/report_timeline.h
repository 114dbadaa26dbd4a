// The part of a report in which one step is drawn.
#pragma once

#include <span>
#include <string>

#include "lockstep/train/observe/trace_file.h"

namespace lockstep::train {

// Empty where there is nothing to draw.
std::string timeline_section(std::span<const RankTrace> ranks);

}  // namespace lockstep::train
