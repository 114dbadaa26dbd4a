// Ends the communication of a rank when its supervisor asks for that: where a whole node is lost,
// the rank would notice only after a while.
#pragma once

#include <thread>

#include "lockstep/base/file/fd.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/launch/rank_link.h"

namespace lockstep {

// In a thread of its own, until destruction. Both outlive it.
class LeaveWatch {
 public:
  LeaveWatch(const SupervisorLink& link, Communicator& world);
  ~LeaveWatch();
  LeaveWatch(const LeaveWatch&) = delete;
  LeaveWatch& operator=(const LeaveWatch&) = delete;

 private:
  Pipe cancel_;  // its closed end ends the thread
  std::jthread thread_;
};

}  // namespace lockstep
