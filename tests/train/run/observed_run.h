// A folder of a run, and the events that its observers receive.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/train/observe/observer.h"

namespace lockstep::train {

class ObservedRun : public ::testing::Test {
 protected:
  RunFacts facts(std::int64_t first_step = 1) const {
    RunFacts facts;
    facts.folder = folder_;
    facts.model = "gpt2 of 2 x 64";
    facts.precision = "f32";
    facts.hardware = "cpu, 2 threads";
    facts.steps = 20;
    facts.first_step = first_step;
    return facts;
  }

  static StepRecord record(std::int64_t step) {
    StepRecord record;
    record.metrics = {.step = step,
                      .loss = 4.0 / static_cast<double>(step),
                      .gradient_norm = 0.5,
                      .rate = 1e-3,
                      .tokens = 512,
                      .seconds = 0.25};
    record.memory_bytes = 1 << 20;
    record.data_seconds = 0.125;
    return record;
  }

  static std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

}  // namespace lockstep::train
