#include "lockstep/base/system/deadline.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {

int poll_milliseconds(Deadline deadline) {
  if (deadline == kNoDeadline) return -1;
  const auto now = std::chrono::steady_clock::now();
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

bool wait_for_fd(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_milliseconds(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_errno("cannot poll a descriptor", errno);
    if (ready == 0 && has_passed(deadline)) return false;
  }
}

}  // namespace lockstep
