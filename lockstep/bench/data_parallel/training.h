// One run of `lockstep train` as a process of its own, and what it wrote about itself.
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
  double stalled_seconds = 0;               // in which a checkpoint kept it waiting, before it
  double background_seconds = 0;            // of a checkpoint beside steps that ended before it
  double memory_bytes = 0;                  // the most that rank 0 has had in RAM; 0: not told
  std::optional<train::WorkerCosts> ranks;  // none: one rank, or the program does not tell
};

struct Trained {
  std::vector<TrainedStep> steps;
  std::string problem;  // how it ended and its last words; empty: all is well

  std::optional<double> validation_loss() const;  // the last there was
};

// Trains in `folder`, which has no run yet, and waits for the end. Throws only when interrupted;
// then, as always, no process of the run is left.
Trained run_training(const std::filesystem::path& command, const Training& training,
                     const std::filesystem::path& folder, const Interrupt& interrupt);

// Waits until it has ended. Throws when interrupted.
void wait_for(Process& process, const Interrupt& interrupt);
// "exit code 1: its last words"; empty: it went well.
std::string problem_of(const Process& process);

// When a run's steps were told of, in seconds since 1970, by its event files in order. With
// asynchronous workers the steps are those that rank 0 had a part in.
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
