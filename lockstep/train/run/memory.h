// What a run chooses by the memory there is, alike at all its workers.
#pragma once

#include <string>

#include "lockstep/base/config/config.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// With memory.auto, and with train.recompute = "auto": chooses what is open, into `options`, which
// `config` is bound to. All workers of the run call it; worker 0 decides, by the least that any of
// them has room for. Returns what was chosen, for people; empty: there was nothing to choose.
std::string settle_memory(TrainOptions& options, const Config& config, const Ops& ops,
                          RunGroup group);

// Before ranks are started, so that it is said once and not by each of them: throws as
// check_limit() (train/memory/run_plan.h) does where worker 0 of `options` would be over a limit
// even with one thread. Does nothing where there is no limit, or where the model is known only with
// its data.
void check_memory_before(const TrainOptions& options, const Config& config);

}  // namespace lockstep::train
