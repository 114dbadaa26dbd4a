// The history of steps for a report, read from metrics.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/report/curve.h"

namespace lockstep::train {

struct RunHistory {
  std::int64_t steps = 0;  // that are recorded
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  std::int64_t skipped = 0;
  std::int64_t tokens = 0;
  std::uint64_t memory_bytes = 0;  // the most
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  struct Validation {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::optional<Validation> last_validation;
  std::optional<Validation> best_validation;
  // Seconds of all steps.
  double compute_seconds = 0;
  double data_seconds = 0;
  double checkpoint_seconds = 0;
  double validation_seconds = 0;
  double background_seconds = 0;  // of checkpoints, beside these
  double recorded_seconds() const {
    return compute_seconds + data_seconds + checkpoint_seconds + validation_seconds;
  }
  // Of those, what steps from RunFacts::first_step on took.
  double seconds_of_this_process = 0;

  // Of the steps that several workers shared.
  std::int64_t shared_steps = 0;
  double waiting_seconds = 0;           // in which a worker did not compute: means over workers
  double communication_seconds = 0;     // means over workers
  double exposed_seconds = 0;           // of these
  double longest_exposed_seconds = 0;   // of the worker that waited longest in a step
  std::uint64_t bytes_sent = 0;         // of all
  std::uint64_t bytes_across = 0;       // of these between nodes
  double staleness = 0;                 // the sum of steps' means
  double most_stale = 0;                // of any worker in any step
  std::map<int, std::int64_t> slowest;  // in how many steps each rank was

  CurveBuilder loss;
  CurveBuilder smoothed_loss;
  CurveBuilder validation_loss;
  CurveBuilder tokens_per_second;
  CurveBuilder gradient_norm;
  CurveBuilder rate;
  CurveBuilder loss_scale;
  CurveBuilder compute;  // milliseconds, as the next: the mean over workers
  CurveBuilder communication;
  CurveBuilder exposed;
  bool scaled = false;  // whether a loss scale was ever other than 1
};

// Builds a history step by step.
class HistoryBuilder {
 public:
  // Of a run of `steps` steps, the last process of which began with `first_step`.
  HistoryBuilder(std::int64_t steps, std::int64_t first_step);

  void add(const StepRecord& record);
  const RunHistory& history() const { return history_; }

 private:
  RunHistory history_;
  FadingMean mean_;
  std::int64_t first_step_;
};

// All steps that the metrics of the run have.
HistoryBuilder read_history(const std::filesystem::path& folder, std::int64_t steps,
                            std::int64_t first_step);

}  // namespace lockstep::train
