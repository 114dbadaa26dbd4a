// What was due after the last step that a run has done and is not in its files, for a process was
// asked to end while it was at it, or killed.
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
  StepRecord record;  // of the step, as the leader told of it; only where a validation is owed
};

// After `done` steps. The leader's files tell; all workers of the group call it.
Owed owed_after(std::int64_t done, const RunOptions& options, const Dataset& dataset,
                const BatchSource& source, RunGroup group);

}  // namespace lockstep::train
