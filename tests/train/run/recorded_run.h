// A small run within this process, and the events that its observers receive.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/train/run/run.h"

namespace lockstep::train {

class RecordedRun : public ::testing::Test {
 protected:
  // Records all events; `at_step` may act on the run.
  struct Recorder : RunObserver {
    std::map<std::int64_t, double> losses;
    std::map<std::int64_t, double> validation;
    std::uint64_t validation_micro_batches = 0;
    std::vector<std::string> samples;
    std::vector<std::string> warnings;
    std::vector<std::string> notices;
    RunFacts facts;
    std::vector<RunEnd> ends;
    std::function<void(std::int64_t)> at_step = [](std::int64_t) {};

    void begin(const RunFacts& all) override { facts = all; }
    void step(const StepRecord& record) override {
      losses[record.metrics.step] = record.metrics.loss;
      if (record.validation_loss) validation[record.metrics.step] = *record.validation_loss;
      at_step(record.metrics.step);
    }
    void validating(const ValidationProgress& progress) override {
      validation_micro_batches = progress.all;
    }
    void sample(std::int64_t, const std::string& text) override { samples.push_back(text); }
    void notice(const std::string& text) override { notices.push_back(text); }
    void warning(const std::string& text) override { warnings.push_back(text); }
    void end(const RunEnd& end) override { ends.push_back(end); }
  };

  static std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  RecordedRun() {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 200; ++i) text << "the quick brown fox jumps over " << i << " lazy dogs\n";
  }

  std::vector<std::string> tiny(const char* dir) const {
    return {"data.text=" + (folder / "text.txt").string(),
            "data.tokenizer=character",
            "run.dir=" + (folder / dir).string(),
            "model.layers=2",
            "model.hidden=16",
            "model.heads=2",
            "model.dropout=0.1",
            "train.seq_len=8",
            "train.global_batch_size=4",
            "train.micro_batch_size=2",
            "train.precision=f32",
            "train.threads=1",
            "train.steps=12",
            "train.validate_every=0",
            "train.validate_batches=2",
            "checkpoint.every=5"};
  }

  // Runs with its settings and `more`; `recorder` observes the run.
  static RunOutcome run(std::vector<std::string> settings, std::vector<std::string> more,
                        Recorder** recorder, std::function<void(std::int64_t)> at_step = {}) {
    RunSettings given;
    for (const std::string& one : settings) given.config.set(one);
    for (const std::string& one : more) given.config.set(one);
    const StopSignal stop;
    observers.clear();
    observers.push_back(std::make_unique<Recorder>());
    *recorder = static_cast<Recorder*>(observers.front().get());
    observers.push_back(make_metrics_file());
    observers.push_back(make_sample_file());
    if (at_step) (*recorder)->at_step = std::move(at_step);
    return run_training(given, observers, stop);
  }

  std::string states(const char* dir, const char* step) const {
    return bytes_of(folder / dir / "checkpoints" / step / "states.safetensors");
  }

  static std::string error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
  Recorder* recorder = nullptr;
  inline static std::vector<std::unique_ptr<RunObserver>> observers;
};

}  // namespace lockstep::train
