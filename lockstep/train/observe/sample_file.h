// What samples.jsonl tells: texts that the model wrote while it was trained, by all processes that
// worked on the run.
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
