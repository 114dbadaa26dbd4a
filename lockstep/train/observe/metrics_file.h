// Reads metrics.jsonl.
#pragma once

#include <filesystem>
#include <functional>

#include "lockstep/train/observe/observer.h"

namespace lockstep::train {

std::filesystem::path metrics_path(const std::filesystem::path& folder);

// Visits every step in the file, in order; unreadable lines are skipped. None if there is no file.
void read_metrics(const std::filesystem::path& folder,
                  const std::function<void(const StepRecord&)>& visit);

}  // namespace lockstep::train
