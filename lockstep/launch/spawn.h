// Starting a process that ends with this one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/system/cpu_set.h"

namespace lockstep {

// Where PATH has the program; a name with a slash is taken as it is. Throws CommandError.
std::string find_program(const std::string& name,
                         const EnvironmentLookup& environment = process_environment());

// A command that cannot be run; the exit code is the shells': 127 not found, 126 not executable.
struct CommandError {
  std::string message;
  int exit_code;
};

struct SpawnRequest {
  std::string program;                   // a path
  std::vector<std::string> arguments;    // the first is the program's name
  std::vector<std::string> environment;  // "NAME=value"
  int standard_input = -1;
  int standard_output = -1;
  int standard_error = -1;
  int inherited = -1;          // one more descriptor, which keeps its number; -1: none
  std::optional<CpuSet> cpus;  // nothing: as this process
  // Requests to stop wait until the program unblocks them (train::StopSignal does).
  bool holds_stop_signals = false;
};

// Starts it as the leader of a process group of its own, with the default for SIGPIPE and SIGTTOU
// and no signal blocked but those. The kernel kills it when the calling thread ends. Throws
// CommandError when it cannot be executed.
pid_t spawn(const SpawnRequest& request);

}  // namespace lockstep
