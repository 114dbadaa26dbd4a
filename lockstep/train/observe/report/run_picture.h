// A run as one picture: its loss, and one step of all ranks where the run was traced.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::train {

// From metrics.jsonl and, where there is one, trace.json of a run's folder. Throws
// Error(kInvalidArgument) where no step is recorded, and what reading the files throws.
std::string draw_run(const std::filesystem::path& folder);

}  // namespace lockstep::train
