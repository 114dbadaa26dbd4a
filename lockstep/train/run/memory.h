// What a run chooses by the memory there is, alike at all its workers.
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

// Before ranks are started, so that one error is printed and not one of each rank: throws as
// check_limit() (train/memory/run_plan.h) does where worker 0 would be over a limit even with one
// thread. Does nothing where there is no limit, or where the model is known only with its data.
void check_memory_before(const TrainOptions& options, const OpenSettings& open);

}  // namespace lockstep::train
