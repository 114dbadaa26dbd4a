// Observers of a run: metrics, event files, the progress line. That of the report is in
// live/report_file.h, that of facts.json and log.jsonl in run_record.h.
//
// The loop calls every observer with the same events in the same order: begin, then step by step,
// then end. Notices and warnings may come before begin. An observer whose run never began gets no
// end. An observer that cannot write throws Error(kSystem) in begin(). Later it warns once and
// stops writing, because the run matters more than its reports. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/memory/memory_over_steps.h"
#include "lockstep/nn/memory/memory_plan.h"
#include "lockstep/train/observe/worker_costs.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// What is known before the first step.
struct RunFacts {
  std::filesystem::path folder;  // of the run; exists
  std::string name;              // run.name
  std::string model;             // "gpt2 of 4 x 128"
  std::string precision;         // "bf16"
  std::string hardware;          // "cpu, 2 threads, avx512"
  std::string config;            // resolved, as TOML
  std::string data;              // "tinyshakespeare.txt: 1,003,854 tokens of 65, 111,540 held back"
  std::uint64_t parameters = 0;
  std::vector<std::string> blocks;  // of the model, of all stages, in order: "layer.3"
  int workers = 1;
  std::string strategy = "alone";  // how they share a step
  std::vector<double> work;        // of each worker in a step; empty: all as much, or not known
  std::int64_t batch = 0;          // sequences of a step, all workers together; 0: not known
  std::int64_t micro_batch = 0;    // sequences that a worker computes at once
  std::int64_t step_tokens = 0;    // of a step, all workers together
  double step_flops = 0;           // of matrix products, without what is recomputed
  double peak_flops = 0;           // FLOP/s of the machine's matrix products, measured; 0: unknown
  std::int64_t steps = 0;          // at which the run ends
  std::int64_t first_step = 1;     // this process begins with; over 1: resumed
  std::vector<nn::ClassLine> memory;
  std::uint64_t memory_bytes = 0;  // planned
  // The same of each rank; empty: as rank 0.
  std::vector<std::vector<nn::ClassLine>> memory_of_ranks;
  // The plan of rank 0 from step to step of its schedule, and the names of its blocks.
  nn::MemoryOverSteps memory_over_steps = {};
  std::vector<std::string> blocks_of_rank = {};
};

struct StepRecord {
  StepMetrics metrics;
  std::optional<WorkerCosts> workers;     // where there is more than one
  std::optional<double> validation_loss;  // taken after this step
  std::uint64_t memory_bytes = 0;         // the most that the process has had in RAM
  // What a step takes besides metrics.seconds.
  double data_seconds = 0;  // until the batch was there
  double checkpoint_seconds =
      0;  // in which a checkpoint kept the run waiting, since the step before
  double validation_seconds = 0;  // after the step
  // Of checkpoints written in the background that completed since the step before.
  double background_seconds = 0;
};

struct RunEnd {
  enum class Reason : std::uint8_t { kFinished, kInterrupted, kFailed };
  Reason reason = Reason::kFinished;
  std::string message;               // of a failure
  double seconds = 0;                // of this process's part of the run
  std::filesystem::path trace = {};  // that was written (train/observe/trace_file.h); empty: none
};

// Of a running validation.
struct ValidationProgress {
  std::int64_t step = 0;   // after which it is taken
  std::uint64_t done = 0;  // micro-batches, as the next
  std::uint64_t all = 0;
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void begin(const RunFacts& facts) = 0;
  // Once for each step. Exception: if the previous process was stopped during a validation, a
  // resumed run repeats that step (first_step - 1), now with its validation loss.
  virtual void step(const StepRecord& record) = 0;
  // Every now and then in a validation, before its first micro-batch included.
  virtual void validating(const ValidationProgress&) {}
  // A text that the model wrote after a step.
  virtual void sample(std::int64_t step, const std::string& text) = 0;
  // A message for the user: a checkpoint was saved, a file was damaged.
  virtual void notice(const std::string& text) = 0;
  virtual void warning(const std::string& text) = 0;
  virtual void end(const RunEnd& end) = 0;
};

// metrics.jsonl in the run's folder: a JSON object a line. Lines of steps that a resumed run
// repeats, and an incomplete last line, are removed first, so every step appears once.
std::unique_ptr<RunObserver> make_metrics_file();
// samples.jsonl in the run's folder, in the same way: {"step":500,"text":"..."}.
std::unique_ptr<RunObserver> make_sample_file();
// TensorBoard's event file, in <folder>/tensorboard.
std::unique_ptr<RunObserver> make_event_file();

struct ProgressOptions {
  bool terminal = false;    // one line that is rewritten; else plain lines
  int columns = 0;          // of the terminal; 0: it is asked for every line
  std::string path = {};    // of the terminal; empty: it is standard error
  std::int64_t every = 10;  // steps between plain lines
};
// Writes to standard error.
std::unique_ptr<RunObserver> make_progress(const ProgressOptions& options);

}  // namespace lockstep::train
