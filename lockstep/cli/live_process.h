// The live page of a run in progress: `lockstep watch` as a process of its own, so that a slow
// reader of it cannot delay training.
#pragma once

#include <sys/types.h>

#include "lockstep/base/file/fd.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::cli {

class LiveProcess {
 public:
  // None where live.port is 0, and where the launcher of this process has one. Prints the link.
  // Throws Error(kInvalidArgument) where the page cannot be served. Must be called while the
  // process has one thread, which outlives it.
  explicit LiveProcess(const train::RunOptions& options);
  // Lets readers have the end of the run, for a second at most.
  ~LiveProcess();
  LiveProcess(const LiveProcess&) = delete;
  LiveProcess& operator=(const LiveProcess&) = delete;

 private:
  pid_t pid_ = -1;
  UniqueFd lifeline_;  // closed: it ends
};

}  // namespace lockstep::cli
