// How a process ended.
#pragma once

#include <string>

namespace lockstep {

// The exit code of a rank that was interrupted and has saved its work: EX_TEMPFAIL of sysexits.h.
inline constexpr int kToBeContinued = 75;

std::string signal_name(int signal);  // "SIGKILL"

// The status of an ended process from waitpid().
struct ExitStatus {
  int wait_status = 0;

  bool is_success() const { return wait_status == 0; }
  int signal() const;            // 0 when it was not a signal
  int code() const;              // as shells have it: the exit code, or 128 + the signal
  std::string describe() const;  // "exited with code 3", "was killed by SIGKILL"
};

}  // namespace lockstep
