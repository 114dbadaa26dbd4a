// The cost model: the time of a schedule on a topology, in seconds.
//
// A round takes as long as its slowest message; a schedule takes the sum of its rounds. A message
// takes its start-up and its transfer:
//   start-up   a rank starts its messages one after another: one that sends (or receives) m of them
//              in a round needs m alpha
//   transfer   concurrent messages share every port and uplink they cross: what crosses it in the
//              round, divided by its bandwidth, for the slowest on the message's way
// and, where gamma is given, what the receiver combines in the round times gamma. Sending and
// receiving do not disturb each other. Local copies are free.
//
// So the time of a round is the maximum of straight lines over the vector's size. A Profile keeps
// these lines: making it takes as long as walking the schedule, pricing a size takes next to none.
#pragma once

#include <vector>

#include "lockstep/comm/schedule/instance.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep::schedule {

struct CostLine {
  double seconds = 0;
  double seconds_per_byte = 0;  // of the vector
  double at(double bytes) const { return seconds + seconds_per_byte * bytes; }
};

struct Profile {
  std::vector<std::vector<CostLine>> rounds;

  double seconds(double bytes) const;
  std::vector<double> round_seconds(double bytes) const;
};

// `bytes` are always those of the vector as chunk_share() defines it.
Profile profile(const Schedule& schedule, const Topology& topology);
double cost(const Schedule& schedule, double bytes, const Topology& topology);

}  // namespace lockstep::schedule
