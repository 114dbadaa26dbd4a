#include "lockstep/bench/interrupt.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::bench {

Interrupt::Interrupt() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
  signals_ = Handle(::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0) fail_errno("cannot watch for signals", errno);
  sigaddset(&ending, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &ending, &before_);
}

Interrupt::~Interrupt() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void Interrupt::check() const {
  signalfd_siginfo signal{};
  if (::read(fd(), &signal, sizeof signal) == sizeof signal) {
    fail(ErrorCode::kAborted, "ended by SIG{}", sigabbrev_np(static_cast<int>(signal.ssi_signo)));
  }
}

}  // namespace lockstep::bench
