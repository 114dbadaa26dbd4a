// Processes that must not outlive this one.
#pragma once

#include <sys/types.h>

#include <vector>

#include "lockstep/base/system/deadline.h"

namespace lockstep {

// From now on, a process below this one whose parent ends becomes a child of this process (unless
// another such process stands between), so that nobody escapes kill_descendants().
void adopt_orphans();

std::vector<pid_t> children_of(pid_t process);

// Kills and reaps all children, then the children they leave to us, until there are none; true when
// that was so before the deadline. SIGCHLD must be blocked.
bool kill_descendants(Deadline deadline);

}  // namespace lockstep
