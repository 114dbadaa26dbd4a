// A command of the shell, as a test sees it.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "tests/paths.h"

namespace lockstep::testing {

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string text;    // of stdout; redirect to have more or less
};

inline Outcome shell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed");
  Outcome outcome;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.text.append(buffer, n);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

// The built command, with stdout and stderr in the text.
inline Outcome run_lockstep(const std::string& arguments) {
  return shell(in_build("lockstep") + " " + arguments + " 2>&1");
}

}  // namespace lockstep::testing
