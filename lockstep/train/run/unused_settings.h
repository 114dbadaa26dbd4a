// Finds settings that were given and have no effect.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

// A sentence for each unused setting of parallel.* about sharding. `config` is bound to `options`,
// which are resolved. Settings that depend on a stage chosen by memory.auto are not reported, nor
// any for one worker: the same settings may be used with any number.
std::vector<std::string> unused_settings(const TrainOptions& options, const Config& config,
                                         const Ops& ops);

}  // namespace lockstep::train
