// The escalation of signals to ranks that should end.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

#include "lockstep/base/system/deadline.h"

namespace lockstep {

// After start(): nothing for the grace period, then SIGTERM, after another one SIGKILL.
class EndPlan {
 public:
  explicit EndPlan(std::chrono::milliseconds grace) : grace_(grace) {}

  bool has_started() const { return next_signal_ != 0; }
  void start(Deadline now) {
    if (has_started()) return;
    next_signal_ = SIGTERM;
    due_ = now + grace_;
  }
  void kill_now(Deadline now) {
    next_signal_ = SIGKILL;
    due_ = now;
  }

  // The moment of the next signal. / That signal, once its moment has come.
  Deadline due() const { return due_; }
  std::optional<int> take_due_signal(Deadline now) {
    if (now < due_) return std::nullopt;
    const int signal = next_signal_;
    next_signal_ = SIGKILL;
    due_ = signal == SIGTERM ? now + grace_ : kNoDeadline;
    return signal;
  }

 private:
  std::chrono::milliseconds grace_;
  int next_signal_ = 0;
  Deadline due_ = kNoDeadline;
};

}  // namespace lockstep
