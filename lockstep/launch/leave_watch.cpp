#include "lockstep/launch/leave_watch.h"

#include <csignal>

#include "lockstep/launch/make_world.h"

namespace lockstep {

LeaveWatch::LeaveWatch(const SupervisorLink& link, Communicator& world) : cancel_(make_pipe()) {
  // Signals are for the other threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this, &link, &world] {
    if (!link.await_leave(cancel_.read_end.get())) return;
    leave_world(world, "the launcher has lost another node");
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LeaveWatch::~LeaveWatch() { cancel_.write_end.reset(); }

}  // namespace lockstep
