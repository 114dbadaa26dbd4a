// The folder of a run, written as a run writes it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/live/report_file.h"
#include "lockstep/train/observe/run_record.h"
#include "tests/train/run/observed_run.h"

namespace lockstep::live {

class LiveRun : public train::ObservedRun {
 protected:
  LiveRun() {
    observers_.push_back(train::make_metrics_file());
    observers_.push_back(train::make_sample_file());
    observers_.push_back(train::make_run_record());
  }

  void begin(const train::RunFacts& facts) {
    for (const auto& one : observers_) one->begin(facts);
  }
  void step(const train::StepRecord& record) {
    for (const auto& one : observers_) one->step(record);
  }
  void sample(std::int64_t step, const std::string& text) {
    for (const auto& one : observers_) one->sample(step, text);
  }
  void end(const train::RunEnd& end) {
    for (const auto& one : observers_) one->end(end);
  }
  // Steps `from` to `to`, every fifth with a validation.
  void steps(std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i <= to; ++i) {
      train::StepRecord one = record(i);
      if (i % 5 == 0) one.validation_loss = 3 - 0.1 * static_cast<double>(i);
      step(one);
    }
  }

  std::vector<std::unique_ptr<train::RunObserver>> observers_;
};

}  // namespace lockstep::live
