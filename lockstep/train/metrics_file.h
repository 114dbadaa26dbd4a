// Where metrics.jsonl is, and what is read from it.
#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/train/observer.h"

namespace lockstep::train {

std::filesystem::path metrics_path(const std::filesystem::path& folder);

// Every step that the file tells of, in the file's order; lines that cannot be read are left out.
// Empty where there is no such file.
std::vector<StepRecord> read_metrics(const std::filesystem::path& folder);

}  // namespace lockstep::train
