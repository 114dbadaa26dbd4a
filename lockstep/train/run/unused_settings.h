// Settings that somebody gave a value and that change nothing.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// Those of parallel.* that shape what workers shard, where there are several workers and they
// shard nothing of the kind, or already do so; a sentence each, for people. `config` is bound
// to `options`, which are settled. Nothing of what depends on a stage that memory.auto chose, and
// nothing for one worker: the same settings may be run with any number.
std::vector<std::string> unused_settings(const TrainOptions& options, const Config& config,
                                         const Ops& ops);

}  // namespace lockstep::train
