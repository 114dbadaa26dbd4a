// Ends a job with its launcher, even if the launcher is killed with SIGKILL.
//
// The launcher is two processes. The *guardian* is the one the user started. The *supervisor*, its
// child, starts the ranks and does all the work. Each adopts orphans and cleans up after the other:
//
//   the guardian dies    the supervisor sees the lifeline end, and kills the ranks and what they
//                        started
//   the supervisor dies  the kernel kills the ranks with it; what they started falls to the
//                        guardian, which kills it
//
// The supervisor has its own process group, so that a signal of the terminal reaches only the
// guardian, which passes it on once.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>

#include "lockstep/base/file/fd.h"

namespace lockstep {

struct Guarded {
  // In the guardian, after the supervisor has ended: the exit code of the job.
  std::optional<int> exit_code;
  // In the supervisor: ends (POLLHUP) when the guardian dies.
  UniqueFd lifeline;
};

// Forks, and returns in both. Must be called while the process has one thread.
Guarded guard();

// The signals that launchers pass on, less those that this process was started to ignore.
sigset_t forwarded_signals();

}  // namespace lockstep
