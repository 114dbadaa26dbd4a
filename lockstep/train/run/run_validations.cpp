#include "lockstep/train/run/run_validations.h"

#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/run/validation.h"

namespace lockstep::train {

RunValidations::RunValidations(const Parts& parts)
    : parts_(parts), early_(parts.options.early_stopping, parts.options.early_stopping_delta) {}

void RunValidations::resume(std::int64_t done) {
  if (!early_.is_on()) return;
  if (parts_.group.leads()) {
    read_metrics(parts_.options.dir, [&](const StepRecord& one) {
      const auto loss = one.validation_loss;
      if (one.metrics.step <= done && loss) early_.add(one.metrics.step, *loss);
    });
  }
  const EarlyStopping::State mine = early_.state();
  const std::array<double, 3> numbers = {mine.best, mine.best_step, mine.counted};
  const std::vector<double> all = parts_.group.numbers(numbers);
  early_.set_state({.best = all[0], .best_step = all[1], .counted = all[2]});
}

void RunValidations::take(StepRecord& record) {
  const auto begin = SteadyClock::now();
  const parallel::TraceScope scope(parts_.strategy.trace(),
                                   {.lane = parallel::TraceLane::kCompute, .kind = "validation"});
  const bool shared = parts_.strategy.in_lockstep();
  if (!shared && !parts_.group.leads()) return;
  log_debug("validates after step {}", record.metrics.step);
  RunGroup judges = shared ? parts_.group : RunGroup(nullptr);
  const auto tell = [&](std::uint64_t done, std::uint64_t all) {
    parts_.audience.validating({.step = record.metrics.step, .done = done, .all = all});
  };
  const Validation taken = validation_loss(parts_.trainer.replica(), parts_.strategy, parts_.source,
                                           judges, parts_.stop, tell);
  record.validation_loss = taken.loss;
  cut_ = cut_ || taken.cut;
  record.validation_seconds = seconds_since(begin);
  if (taken.loss && std::isfinite(*taken.loss)) early_.add(record.metrics.step, *taken.loss);
}

// Before anything is saved.
bool RunValidations::follow(const StepRecord& record) {
  const auto loss = record.validation_loss;
  if (loss && !std::isfinite(*loss)) {
    parts_.saving.finish();
    std::vector<nn::Batch> first;  // of this worker
    // Context ranks have the same sequences; expert ranks compute together, each with a batch.
    nn::Replica& replica = parts_.trainer.replica();
    const int context = replica.setup().context.size;
    auto judge = static_cast<std::uint64_t>(
        parts_.strategy.in_lockstep() ? parts_.strategy.worker() / context : 0);
    if (replica.expert_axis() != nullptr) judge %= parts_.source.validation_batches();
    if (judge < parts_.source.validation_batches()) {
      first.push_back(parts_.source.validation(judge));
    }
    fail_validation(at_fault(), record.metrics.step, *loss, first);
  }
  if (loss) parts_.saving.found_finite(record.metrics.step);
  return is_best(record);
}

RunAtFault RunValidations::at_fault() {
  return {.replica = parts_.trainer.replica(),
          .strategy = parts_.strategy,
          .group = parts_.group,
          .checkpoints = parts_.checkpoints,
          .options = parts_.options.train};
}

}  // namespace lockstep::train
