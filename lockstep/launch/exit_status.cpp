#include "lockstep/launch/exit_status.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

namespace lockstep {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

int ExitStatus::signal() const { return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0; }

int ExitStatus::code() const {
  constexpr int kSignalBase = 128;
  return signal() != 0 ? kSignalBase + signal() : WEXITSTATUS(wait_status);
}

std::string ExitStatus::describe() const {
  if (signal() == 0) return fmt::format("exited with code {}", code());
  return fmt::format("was killed by {}{}", signal_name(signal()),
                     WCOREDUMP(wait_status) ? " (core dumped)" : "");
}

}  // namespace lockstep
