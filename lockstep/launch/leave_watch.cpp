#include "lockstep/launch/leave_watch.h"

#include <csignal>

namespace lockstep {

LeaveWatch::LeaveWatch(const SupervisorLink& link, int generation, std::atomic<int>& regroups)
    : cancel_(make_pipe()) {
  // Signals are for the other threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this, &link, generation, &regroups] {
    while (const auto request = link.await_request(generation, cancel_.read_end.get())) {
      if (request->regroup > 0) {
        regroups = request->regroup;
      } else {
        leaves_.request_stop();
        return;
      }
    }
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LeaveWatch::~LeaveWatch() { cancel_.write_end.reset(); }

}  // namespace lockstep
