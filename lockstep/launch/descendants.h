// Processes that must not outlive this one.
#pragma once

#include <sys/types.h>

#include <vector>

#include "lockstep/base/system/deadline.h"

namespace lockstep {

// Makes this process the parent of orphaned descendants (unless another such process is in
// between), so that kill_descendants() reaches all.
void adopt_orphans();

std::vector<pid_t> children_of(pid_t process);

// Kills and reaps all descendants; true if none was left before the deadline. SIGCHLD must be
// blocked.
bool kill_descendants(Deadline deadline);

}  // namespace lockstep
