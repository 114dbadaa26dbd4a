// Reads samples.jsonl: texts that the model generated during training, in all processes of the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::train {

struct Sample {
  std::int64_t step = 0;
  std::string text;
};

// Those of steps before `first_step`, in the file's order; none where there is no such file.
std::vector<Sample> read_samples(const std::filesystem::path& folder, std::int64_t first_step);

}  // namespace lockstep::train
