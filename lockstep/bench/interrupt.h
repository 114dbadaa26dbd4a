// Ctrl-C (and SIGTERM, SIGHUP) as something to poll for, so that a bench ends by unwinding and
// takes its processes with it. A pipe that closes becomes a write error for the same reason.
#pragma once

#include <signal.h>

#include "lockstep/base/file/fd.h"

namespace lockstep::bench {

// During its lifetime the signals only make fd() readable. Construct it before any thread is
// started.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int fd() const { return signals_.get(); }
  // Throws Error(kAborted) when one of the signals has come.
  void check() const;

 private:
  sigset_t before_;
  UniqueFd signals_;
};

}  // namespace lockstep::bench
