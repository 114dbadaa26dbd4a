// What is still due after the last step of a run: a validation or sample that an earlier process
// did not finish because it was stopped or killed.
#pragma once

#include <cstdint>

#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct Owed {
  bool validation = false;
  bool sample = false;
  StepRecord record;  // of the step, from the leader; only if a validation is due
};

// What is due after `done` steps, by the leader's files. All workers of the group call it.
Owed owed_after(std::int64_t done, const RunOptions& options, const Dataset& dataset,
                const BatchSource& source, RunGroup group);

}  // namespace lockstep::train
