// Does what the supervisor asks for while a rank connects to the others and trains. It may have to
// leave: where a whole node is lost, or ranks that it has not met yet, it would notice only after a
// while. Or it is to stop after a step, to meet the others again in another number.
#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

#include "lockstep/base/file/fd.h"
#include "lockstep/launch/rank_link.h"

namespace lockstep {

// In a thread of its own, until destruction. All outlive it.
class LeaveWatch {
 public:
  // Sets `regroups` to the number of the last request to regroup in that generation.
  LeaveWatch(const SupervisorLink& link, int generation, std::atomic<int>& regroups);
  ~LeaveWatch();
  LeaveWatch(const LeaveWatch&) = delete;
  LeaveWatch& operator=(const LeaveWatch&) = delete;

  // Stopped when the rank is to leave: for make_world().
  std::stop_token leaves() const { return leaves_.get_token(); }

 private:
  Pipe cancel_;  // its closed end ends the thread
  std::stop_source leaves_;
  std::jthread thread_;
};

}  // namespace lockstep
