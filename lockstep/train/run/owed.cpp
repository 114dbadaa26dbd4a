#include "lockstep/train/run/owed.h"

#include <array>
#include <vector>

#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/sample_file.h"
#include "lockstep/train/run/samples.h"

namespace lockstep::train {

Owed owed_after(std::int64_t done, const RunOptions& options, const Dataset& dataset,
                const BatchSource& source, RunGroup group) {
  const bool last = done == options.steps;
  const auto was_due = [&](int every) { return every > 0 && (last || done % every == 0); };
  Owed owed;
  if (group.leads() && source.validation_batches() > 0 &&
      (last || was_due(options.validate_every))) {
    read_metrics(options.dir, [&](const StepRecord& one) {
      if (one.metrics.step != done) return;
      owed.record = one;
      owed.validation = !one.validation_loss;
    });
  }
  if (group.leads() && was_due(options.sample.every) && cannot_sample(options, dataset).empty()) {
    const std::vector<Sample> samples = read_samples(options.dir, done + 1);
    owed.sample = samples.empty() || samples.back().step != done;
  }
  const std::array<double, 2> mine = {owed.validation ? 1.0 : 0.0, owed.sample ? 1.0 : 0.0};
  const std::vector<double> all = group.numbers(mine);
  owed.validation = all[0] != 0;
  owed.sample = all[1] != 0;
  owed.record.metrics.step = done;
  return owed;
}

}  // namespace lockstep::train
