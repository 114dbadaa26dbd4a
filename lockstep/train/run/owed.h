// What is still due after the last step of a run: a validation or sample that an earlier process
// did not finish because it was stopped or killed.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct Owed {
  bool validation = false;
  bool sample = false;
  bool report = false;  // of the step itself
  StepRecord record;    // of the step, from the leader; only if a validation or a report is due
};

// What is due after `done` steps, the last ones where the run is `at_end`, by the leader's files.
// `known` is the record of that step, where a worker has kept it: it is due if the files lack it.
// All workers of the group call it.
Owed owed_after(std::int64_t done, bool at_end, const RunOptions& options, const Dataset& dataset,
                const BatchSource& source, RunGroup group,
                const std::optional<StepRecord>& known = std::nullopt);

}  // namespace lockstep::train
