// Finds the ranks that stall a schedule. A rank often waits for one that itself waits. So a waiting
// rank sends the others its operation and the ranks it waits for, compares theirs, and at the
// deadline knows the ranks at fault.
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
  // `rank` is this rank's number among the members of the inbox; `history` has its operations. Both
  // references must stay valid.
  StallMonitor(Fabric& fabric, std::uint64_t tag, int rank, Inbox& inbox, const History& history)
      : fabric_(fabric), tag_(tag), rank_(rank), inbox_(inbox), history_(history) {}

  // Throws Error(kMismatch) if another rank reports a different operation.
  void look(std::chrono::nanoseconds waited, const std::vector<int>& awaited);
  // The ranks at fault: those that have not started the operation, and those among the awaited
  // ranks, and the ranks they wait for in turn, that wait for no rank.
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
