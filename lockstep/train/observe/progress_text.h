// The text of progress lines; progress.cpp prints it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/straggler.h"

namespace lockstep::train {

// The content of a progress line.
struct Progress {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0;
  bool skipped = false;
  std::optional<double> validation_loss;  // the last that was taken
  double rate = 0;
  std::optional<double> gradient_norm;
  double tokens_per_second = 0;  // this and the next recent, including data
  double flops_per_second = 0;   // 0: unknown, as the next
  double peak_flops = 0;
  std::uint64_t memory_bytes = 0;
  double seconds_left = 0;
  std::optional<Straggler> straggler;  // holds the others up
  double staleness = 0;                // the mean over workers, as the next of the last step
  double most_stale = 0;               // of the worker that was most so
};

// Tracks a run. Rates are exponential averages of the last seconds.
class ProgressMeter {
 public:
  explicit ProgressMeter(const RunFacts& facts);

  Progress add(const StepRecord& record);

 private:
  double seconds_per_step() const;

  double step_flops_ = 0;
  Progress progress_;
  StragglerWatch straggler_;
  // Exponentially decaying sums.
  double steps_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
  // Checkpoints and validations are rare and long: all of them, spread over all steps.
  std::int64_t all_steps_ = 0;
  double seconds_between_ = 0;
};

// "step 120/500  loss 3.2143  ...  3m 10s left"
std::string progress_line(const Progress& progress);
// The same, shortened to `columns` by leaving out the least important fields.
std::string progress_line(const Progress& progress, int columns);

// "step 250/5,000  validating 37%, 148 of 400 micro-batches", cut to `columns`.
std::string validation_line(const ValidationProgress& progress, std::int64_t steps, int columns);

// Lines with their ends: what begins, what ended (`last` is the last step, if there was any; `done`
// steps were done before, of `steps`), a sample, indented. The caller prints why a run failed.
std::string opening_text(const RunFacts& facts);
std::string closing_text(const RunEnd& end, const std::optional<Progress>& last,
                         std::int64_t done = 0, std::int64_t steps = 0);
std::string sample_text(std::int64_t step, const std::string& text);

}  // namespace lockstep::train
