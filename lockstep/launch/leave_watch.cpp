#include "lockstep/launch/leave_watch.h"

#include <csignal>

#include "lockstep/launch/make_world.h"

namespace lockstep {

LeaveWatch::LeaveWatch(const SupervisorLink& link, Communicator* world, int generation,
                       std::atomic<int>& regroups)
    : cancel_(make_pipe()) {
  // Signals are for the other threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this, &link, world, generation, &regroups] {
    while (const auto request = link.await_request(generation, cancel_.read_end.get())) {
      if (request->regroup > 0) {
        regroups = request->regroup;
      } else {
        if (world != nullptr) leave_world(*world, "the launcher has lost another node");
        return;
      }
    }
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LeaveWatch::~LeaveWatch() { cancel_.write_end.reset(); }

}  // namespace lockstep
