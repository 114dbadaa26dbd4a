// Compares the estimated costs of all algorithms of a collective.
#pragma once

#include <span>
#include <string>

#include "lockstep/comm/schedule/price_list.h"

namespace lockstep::cli {

// One table for each shape, algorithms down and sizes across, the cheapest marked; then the sizes
// at which the cheapest changes.
std::string explain_cost(Collective collective, std::span<const schedule::Shape> shapes,
                         std::span<const std::size_t> sizes, const schedule::Network& network);

// The ranks of a shape on a network, and "16 ranks on 2 nodes".
schedule::Topology topology_of(const schedule::Shape& shape, const schedule::Network& network);
std::string describe(const schedule::Shape& shape, const schedule::Topology& topology);

}  // namespace lockstep::cli
