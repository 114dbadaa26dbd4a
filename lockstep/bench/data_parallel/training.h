// Runs `lockstep train` as a process and reads its results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/process.h"
#include "lockstep/train/observe/worker_costs.h"

namespace lockstep::bench::data_parallel {

struct Training {
  std::vector<std::string> settings;  // key=value; of one key the last counts
  int ranks = 1;
};

// A line of metrics.jsonl.
struct TrainedStep {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> validation_loss;
  double tokens = 0;
  double seconds = 0;                       // with waiting for the batch
  double stalled_seconds = 0;               // during which it waited for a checkpoint
  double background_seconds = 0;            // of a checkpoint beside steps that ended before it
  double memory_bytes = 0;                  // the peak resident memory of rank 0; 0: unknown
  std::optional<train::WorkerCosts> ranks;  // none: one rank, or not reported
};

struct Trained {
  std::vector<TrainedStep> steps;
  std::string problem;  // how it ended and its last output; empty: success

  std::optional<double> validation_loss() const;  // the last there was
};

// Trains in `folder`, which has no run yet, and waits for the end. Throws only when interrupted;
// then, as always, no process of the run is left.
Trained run_training(const std::filesystem::path& command, const Training& training,
                     const std::filesystem::path& folder, const Interrupt& interrupt);

// Waits until it has ended. Throws when interrupted.
void wait_for(Process& process, const Interrupt& interrupt);
// "exit code 1: its last output"; empty: success.
std::string problem_of(const Process& process);

// The times of a run's steps, in seconds since 1970, from its event files. With asp and ssp, of the
// steps in which rank 0 took part.
struct StepStamp {
  std::int64_t step = 0;
  double time = 0;
};
std::vector<StepStamp> step_stamps(const std::filesystem::path& folder);

// How long the spans of a kind ("backward", "update") took in a step, the mean over ranks, by a
// run's trace.json, for each step that it has. Throws what train::read_trace() does where there is
// no such trace.
std::vector<double> span_seconds(const std::filesystem::path& folder, std::string_view kind);

}  // namespace lockstep::bench::data_parallel
