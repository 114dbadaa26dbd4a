// Does what the supervisor asks for while a rank trains. It may have to leave: where a whole node
// is lost, the rank would notice only after a while. Or it is to stop after a step, to meet the
// others again in another number.
#pragma once

#include <atomic>
#include <thread>

#include "lockstep/base/file/fd.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/launch/rank_link.h"

namespace lockstep {

// In a thread of its own, until destruction. All outlive it.
class LeaveWatch {
 public:
  // `world` is nullptr for a single rank. Sets `regroups` to the number of the last request to
  // regroup in that generation.
  LeaveWatch(const SupervisorLink& link, Communicator* world, int generation,
             std::atomic<int>& regroups);
  ~LeaveWatch();
  LeaveWatch(const LeaveWatch&) = delete;
  LeaveWatch& operator=(const LeaveWatch&) = delete;

 private:
  Pipe cancel_;  // its closed end ends the thread
  std::jthread thread_;
};

}  // namespace lockstep
