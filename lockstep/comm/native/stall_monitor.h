// What a rank does while a schedule keeps it waiting. It often waits for one that itself waits, so
// it tells the others its operation and whom it waits for, compares what they say of theirs, and at
// the deadline can tell who is to blame.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/history.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {

// Used by the thread that runs the operations.
class StallMonitor {
 public:
  // `rank` is this one's among the members of the inbox; `history` is its own. Both stay in place.
  StallMonitor(Fabric& fabric, std::uint64_t tag, int rank, Inbox& inbox, const History& history)
      : fabric_(fabric), tag_(tag), rank_(rank), inbox_(inbox), history_(history) {}

  // Throws Error(kMismatch) when another rank says that it called something else.
  void look(std::chrono::nanoseconds waited, const std::vector<int>& awaited);
  // Those who have not come to the operation, and those of the awaited ranks, and of the ranks
  // these wait for, that wait for nobody.
  std::vector<int> blame(const std::vector<int>& awaited);

 private:
  std::vector<int> behind(const std::vector<int>& awaited);

  Fabric& fabric_;
  std::uint64_t tag_;
  int rank_;
  Inbox& inbox_;
  const History& history_;
  std::uint64_t told_in_ = 0;  // the operation of the last status
  std::vector<int> told_;      // the ranks awaited in it
};

}  // namespace lockstep
