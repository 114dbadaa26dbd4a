// The runs of a sweep: processes of `lockstep train`, some at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/train/stop_signal.h"

namespace lockstep::cli {

struct SweepRun {
  std::string name;
  std::filesystem::path folder;        // its run.dir
  std::filesystem::path log;           // what it prints is added there
  std::vector<std::string> arguments;  // of `lockstep train`
};

struct SweepProcesses {
  int jobs = 1;     // at a time
  int threads = 0;  // LOCKSTEP_TRAIN_THREADS of each, which settings overrule; 0: not set
  std::function<void(const SweepRun& run)> begins;
  std::function<void(const SweepRun& run, int exit_code)> ends;
};

// Starts each when there is a place for it, and waits for all. When a stop signal came no more are
// started, and those that run are asked to end once, so that they save. Returns whether all were
// started. They do not outlive this process.
bool run_sweep(const std::vector<SweepRun>& runs, const SweepProcesses& processes,
               const train::StopSignal& stop);

}  // namespace lockstep::cli
