#include "lockstep/train/run/owed.h"

#include <array>
#include <vector>

#include "lockstep/train/observe/metrics_file.h"
#include "lockstep/train/observe/sample_file.h"
#include "lockstep/train/run/samples.h"

namespace lockstep::train {

Owed owed_after(std::int64_t done, bool at_end, const RunOptions& options, const Dataset& dataset,
                const BatchSource& source, RunGroup group, const std::optional<StepRecord>& known) {
  const auto was_due = [&](int every) { return every > 0 && (at_end || done % every == 0); };
  Owed owed;
  const bool validates =
      source.validation_batches() > 0 && (at_end || was_due(options.validate_every));
  if (group.leads() && (validates || known)) {
    bool found = false;
    const auto take = [&](const StepRecord& one) {
      owed.record = one;
      owed.validation = validates && !one.validation_loss;
    };
    read_metrics(options.dir, [&](const StepRecord& one) {
      if (one.metrics.step != done) return;
      found = true;
      take(one);
    });
    owed.report = known && !found;
    if (owed.report) take(*known);
  }
  if (group.leads() && was_due(options.sample.every) && cannot_sample(options, dataset).empty()) {
    const std::vector<Sample> samples = read_samples(options.dir, done + 1);
    owed.sample = samples.empty() || samples.back().step != done;
  }
  const std::array<double, 3> mine = {owed.validation ? 1.0 : 0.0, owed.sample ? 1.0 : 0.0,
                                      owed.report ? 1.0 : 0.0};
  const std::vector<double> all = group.numbers(mine);
  owed.validation = all[0] != 0;
  owed.sample = all[1] != 0;
  owed.report = all[2] != 0;
  owed.record.metrics.step = done;
  return owed;
}

}  // namespace lockstep::train
