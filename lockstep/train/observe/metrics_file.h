// Where metrics.jsonl is, and what is read from it.
#pragma once

#include <filesystem>
#include <functional>

#include "lockstep/train/observe/observer.h"

namespace lockstep::train {

std::filesystem::path metrics_path(const std::filesystem::path& folder);

// Visits every step that the file tells of, in the file's order; lines that cannot be read are left
// out. None where there is no such file.
void read_metrics(const std::filesystem::path& folder,
                  const std::function<void(const StepRecord&)>& visit);

}  // namespace lockstep::train
