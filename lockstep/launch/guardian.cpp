#include "lockstep/launch/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/exit_status.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kCleanUpTimeout{5};

// A pipe that lands on descriptor 0, 1 or 2 would be taken for a standard stream.
void open_missing_standard_streams() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd < 0) fail_errno("cannot open /dev/null", errno);
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    return;
  }
}

// Waits for the supervisor's end; passes on what comes meanwhile.
ExitStatus watch(pid_t supervisor, const sigset_t& signals, int& last_passed_on) {
  constexpr int kMaxInterrupts = 3;
  int interrupts = 0;
  while (true) {
    const int signal = ::sigwaitinfo(&signals, nullptr);
    if (signal == SIGCHLD) {
      int status = 0;
      while (const pid_t ended = ::waitpid(-1, &status, WNOHANG)) {
        if (ended == supervisor) return {status};
        if (ended < 0) break;
      }
    } else if (signal > 0) {
      interrupts += signal == SIGINT ? 1 : 0;
      last_passed_on = signal;
      ::kill(supervisor, interrupts >= kMaxInterrupts ? SIGKILL : signal);
    }
  }
}

}  // namespace

sigset_t forwarded_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

Guarded guard() {
  open_missing_standard_streams();
  adopt_orphans();
  Pipe lifeline = make_pipe();
  sigset_t signals = forwarded_signals();
  sigaddset(&signals, SIGCHLD);
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t supervisor = ::fork();
  if (supervisor < 0) fail_errno("cannot start the launcher's second process", errno);
  if (supervisor == 0) {
    ::setpgid(0, 0);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    adopt_orphans();
    return {std::nullopt, std::move(lifeline.read_end)};
  }
  ::setpgid(supervisor, supervisor);
  lifeline.read_end.reset();
  int last_passed_on = 0;
  const ExitStatus status = watch(supervisor, signals, last_passed_on);
  if (status.signal() != 0 && status.signal() != last_passed_on) {
    fmt::print(stderr, "lockstep: the launcher {}; its ranks end with it\n", status.describe());
  }
  if (!kill_descendants(deadline_in(kCleanUpTimeout))) {
    fmt::print(stderr, "lockstep: some processes of the job could not be killed\n");
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return {status.code(), {}};
}

}  // namespace lockstep
