// A coordinator whose nodes' messages and clock are the test's: two nodes of two ranks.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/coordinator.h"

namespace lockstep::coordinated {

using namespace std::chrono_literals;
using Kind = JobMessage::Kind;

inline const Deadline kNow = Deadline(1h);

inline NodeFacts fresh(const std::string& job = "") {
  return {.ranks = 2, .restarts = 2, .job = job};
}

class CoordinatorTest : public ::testing::Test {
 protected:
  static Coordinator make(const std::vector<NodeFacts>& facts, int restarts = 2) {
    return Coordinator({.nodes = static_cast<int>(facts.size()),
                        .ranks_per_node = 2,
                        .restarts = restarts,
                        .has_links = true,
                        .grace = 5s,
                        .rejoin_timeout = 10min},
                       facts);
  }
  CoordinatorTest() : coordinator_(make({fresh("job a"), fresh()})) {}

  std::optional<Coordinator::Action> advance(Deadline now = kNow, bool asked_to_stop = false) {
    return coordinator_.advance(now, asked_to_stop);
  }
  // What it tells all nodes now; nothing else may be due.
  JobMessage told(Deadline now = kNow) {
    const auto action = advance(now);
    if (!action || !action->tell || action->end || action->stop) {
      ADD_FAILURE() << "it tells nothing";
      return {};
    }
    return *action->tell;
  }
  void begin(int generation = 0) {
    const JobMessage message = told();
    EXPECT_EQ(message.kind, Kind::kBegin);
    EXPECT_EQ(message.generation, generation);
    EXPECT_FALSE(advance());
  }
  JobMessage lost(int generation = 0, bool blames = false) const {
    JobMessage message{.kind = Kind::kLost, .generation = generation, .exit_code = 137};
    message.blames = blames;
    message.text = blames ? "rank 2 is at fault" : "rank 2 was killed";
    return message;
  }
  void ready(int node, std::vector<int> kept, int generation = 0) {
    coordinator_.hear(
        node, {.kind = Kind::kReady, .generation = generation, .ranks = std::move(kept)}, kNow);
  }
  void waits(int rank, std::vector<int> hung) {
    JobMessage message{.kind = Kind::kWaits, .generation = 0, .rank = rank};
    message.ranks = std::move(hung);
    message.text = "no answer";
    coordinator_.hear(rank / 2, message, kNow);
  }

  Coordinator coordinator_;
};

}  // namespace lockstep::coordinated
