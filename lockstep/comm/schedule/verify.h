// The verifier: proves that a schedule computes its collective, and counts its messages.
#pragma once

#include <vector>

#include "lockstep/comm/schedule/symbolic.h"

namespace lockstep::schedule {

// What one rank sends and receives; sizes in chunks.
struct RankTraffic {
  int messages_sent = 0;
  int messages_received = 0;
  long long chunks_sent = 0;
  long long chunks_received = 0;
  friend bool operator==(const RankTraffic&, const RankTraffic&) = default;
};

struct Traffic {
  int rounds = 0;                  // of communication
  double chunk_share = 1;          // the part of the vector that is one chunk
  std::vector<RankTraffic> ranks;  // by rank

  // In vectors: multiply by the bytes of the vector.
  double sent_by(int rank) const;
  double sent_by_busiest() const;
  double sent_in_all() const;
};

Traffic count_traffic(const Schedule& schedule);

// Executes the schedule symbolically. Throws, as in symbolic.h, at the first invalid step, or if a
// result is missing at the end. all_to_all is only defined out of place: the executor copies its
// input where it is called in place.
Traffic verify(const Schedule& schedule, Placement placement);

}  // namespace lockstep::schedule
