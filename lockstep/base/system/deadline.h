// A moment after which waiting is an error.
#pragma once

#include <chrono>

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr Deadline kNoDeadline = Deadline::max();

inline Deadline deadline_in(std::chrono::nanoseconds timeout) {
  return std::chrono::steady_clock::now() + timeout;
}

inline bool has_passed(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

// What is left, as poll() wants it: rounded up to milliseconds, 0 when over, -1 for kNoDeadline.
int poll_milliseconds(Deadline deadline);

// Waits until `events` (of poll) happen on `fd`; false when the deadline came first. Errors and
// hang-ups of the descriptor count as events: the read or write that follows will tell.
bool wait_for_fd(int fd, short events, Deadline deadline);

}  // namespace lockstep
