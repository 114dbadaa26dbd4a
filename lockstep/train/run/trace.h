// Collects the traces of a run's workers in its folder.
#pragma once

#include <filesystem>

#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Called by all workers when their last step is done. The leader writes all of them into trace.json
// and returns where that is; the others return nothing. Where workers do not go in lockstep some
// may be gone: it is of those that are still there. A run does not end for it: where the file
// cannot be written there is a warning, and nothing is returned.
std::filesystem::path write_run_trace(RunGroup& group, parallel::Strategy& strategy,
                                      const std::filesystem::path& folder,
                                      const Audience& audience);

}  // namespace lockstep::train
