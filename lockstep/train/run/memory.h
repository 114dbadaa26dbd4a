// Chooses settings by the available memory, the same on all workers.
#pragma once

#include <string>

#include "lockstep/train/memory/smaller_run.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

struct MemoryDecision {
  TrainOptions options;  // as given, with what was chosen
  std::string text;      // what was chosen, for people; empty: nothing
};
// With memory.auto, and with train.recompute = "auto": chooses what is open. All workers of the run
// call it; worker 0 decides, by the least memory that any of them has.
MemoryDecision decide_by_memory(const TrainOptions& options, const OpenSettings& open,
                                const Ops& ops, RunGroup group);

// Called before ranks are started, so that one error is printed and not one per rank: throws like
// check_limit() (train/memory/run_plan.h) if worker 0 would exceed a limit even with one thread.
// Does nothing without a limit, or if the model depends on the data.
void check_memory_before(const TrainOptions& options, const OpenSettings& open);

}  // namespace lockstep::train
