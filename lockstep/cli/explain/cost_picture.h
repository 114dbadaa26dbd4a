// Draws what all algorithms of a collective cost, over the size of the vector.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/comm/schedule/price_list.h"

namespace lockstep::cli {

// A chart for each shape: time by the cost model over size, both axes logarithmic, from the
// smallest to the largest of `sizes`. An algorithm that is the cheapest at some size has a colour,
// and a bar below the chart has these from size to size; the others are grey. As SVG.
std::string draw_costs(Collective collective, std::span<const schedule::Shape> shapes,
                       std::span<const std::size_t> sizes, const schedule::Network& network);

}  // namespace lockstep::cli
