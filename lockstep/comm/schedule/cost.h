// The cost model: what a schedule takes on a topology, in seconds.
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

struct Price {
  const Algorithm* algorithm = nullptr;
  double seconds = 0;
};

// All algorithms of a collective that take the shape, the cheapest first; those that cost the same
// in the order of the registry. Where shape.machines is empty, the topology's are used.
std::vector<Price> cheapest(Collective collective, double bytes, const Shape& shape,
                            const Topology& topology);

// The same for many sizes: profiles made once.
class PriceList {
 public:
  PriceList(Collective collective, const Shape& shape, const Topology& topology);
  std::vector<Price> at(double bytes) const;  // like cheapest()

  struct Entry {
    const Algorithm* algorithm = nullptr;
    Profile profile;
  };
  const std::vector<Entry>& entries() const { return entries_; }

  // The sizes up to `most_bytes` at which another algorithm becomes the cheapest: from `from` bytes
  // on it is `algorithm`. The first entry starts at 1.
  struct Reign {
    double from = 1;
    const Algorithm* algorithm = nullptr;
  };
  std::vector<Reign> reigns(double most_bytes) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace lockstep::schedule
