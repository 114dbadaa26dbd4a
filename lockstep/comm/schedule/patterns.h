// The messages of schedules that are too large to write down. A ring of 16384 ranks has half a
// billion of them, but its rounds are all alike.
//
// A pattern gives the rounds of an algorithm as the cost model needs them: who sends how many
// chunks to whom, and how often such a round comes. Those that do not repeat (trees, halving) have
// few rounds, and no pattern: the cost model walks their programs.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/schedule/schedule.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep::schedule {

struct Message {
  int from = 0;
  int to = 0;
  int chunks = 1;
  bool combines = false;  // the receiver combines them with its own
};

struct PatternRound {
  std::vector<Message> messages;
  bool among_all = false;  // every rank sends each other one what messages.front() says
  int times = 1;
};

// Calls `visit` for the rounds of an algorithm; false where it has no pattern. `shape` has the
// nodes of `topology`, and the algorithm takes it.
bool visit_pattern(const Algorithm& algorithm, const Shape& shape, const Topology& topology,
                   const std::function<void(const PatternRound&)>& visit);

}  // namespace lockstep::schedule
