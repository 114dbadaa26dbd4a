// Which blocks each pipeline stage gets.
#pragma once

#include <span>
#include <vector>

namespace lockstep::plan {

// Cuts blocks with these costs into contiguous runs, one or more blocks for each stage, so that the
// largest cost of a run is the least possible. Returns how many blocks each stage gets. Exact, in
// O(stages * blocks^2). Throws Error(kInvalidArgument) for fewer blocks than stages.
std::vector<int> balanced_stages(std::span<const double> costs, int stages);

}  // namespace lockstep::plan
