// The cost model: the time of a schedule on a topology, in seconds.
//
// A round takes as long as its slowest message; a schedule takes the sum of its rounds. A message
// takes its start-up and its transfer:
//   start-up   a rank starts its messages one after another: one that sends (or receives) m of them
//              in a round needs m alpha
//   transfer   concurrent messages share every port, root, uplink and link of a torus they cross:
//              what crosses it in the round, divided by its bandwidth, for the slowest on the
//              message's way
// and, where gamma is given, what the receiver combines in the round times gamma. Sending and
// receiving do not disturb each other. Local copies are free.
//
// So the time of a round is the maximum of straight lines over the vector's size. A Profile keeps
// these lines: making it takes as long as walking the schedule, pricing a size takes next to none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/schedule/instance.h"
#include "lockstep/comm/schedule/load.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep::schedule {

struct Profile {
  std::vector<std::vector<CostLine>> rounds;
  std::vector<int> times;  // that each round comes; empty: once

  double seconds(double bytes) const;
  std::vector<double> round_seconds(double bytes) const;  // of each, once
};

// `bytes` are always those of the vector as chunk_share() defines it.
Profile profile(const Schedule& schedule, const Topology& topology);
double cost(const Schedule& schedule, double bytes, const Topology& topology);

// The same without a schedule, which for thousands of ranks would not fit into memory: by the
// algorithm's pattern (comm/schedule/patterns.h) where it has one. Nothing, and `why` not, where
// even that would take minutes. `shape` has the topology's nodes.
std::optional<Profile> profile_of(const Algorithm& algorithm, const Shape& shape,
                                  const Topology& topology, std::string& why);

}  // namespace lockstep::schedule
