// Collects the traces of a run's workers in its folder.
#pragma once

#include <filesystem>

#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// Called by all workers when their last step is done. The leader writes all of them into trace.json
// and returns where that is; the others return nothing. With asp and ssp, workers that have died
// are missing. Throws Error(kSystem) if the file cannot be written, after all traces were received.
std::filesystem::path write_run_trace(RunGroup& group, parallel::Strategy& strategy,
                                      const std::filesystem::path& folder);

}  // namespace lockstep::train
