// The verifier proves that a schedule computes its collective, and counts what it costs.
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

  // In vectors: multiply with the vector's bytes.
  double sent_by(int rank) const;
  double sent_by_busiest() const;
  double sent_in_all() const;
};

Traffic count_traffic(const Schedule& schedule);

// Executes the schedule symbolically; throws as symbolic.h says at the first step that makes no
// sense, or when a result is missing at the end. all_to_all is only defined out of place: the
// executor copies its input where it is called in place.
Traffic verify(const Schedule& schedule, Placement placement);

}  // namespace lockstep::schedule
