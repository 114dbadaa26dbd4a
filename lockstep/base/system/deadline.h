// The time after which waiting is an error.
#pragma once

#include <chrono>

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr Deadline kNoDeadline = Deadline::max();

inline Deadline deadline_in(std::chrono::nanoseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}

inline bool has_passed(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

// The remaining time as an argument of poll(): rounded up to milliseconds, 0 after the deadline, -1
// for kNoDeadline.
int poll_milliseconds(Deadline deadline);

// Waits until `events` (of poll) happen on `fd`; false if the deadline passed first. Errors and
// hang-ups of the descriptor count as events: the next read or write reports them.
bool wait_for_fd(int fd, short events, Deadline deadline);

}  // namespace lockstep
