// All observers of a run as one. An observer gets the end only if it has begun.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/train/observe/observer.h"

namespace lockstep::train {

class Audience {
 public:
  explicit Audience(std::span<const std::unique_ptr<RunObserver>> observers)
      : observers_(observers) {}

  void begin(const RunFacts& facts) {
    for (const auto& one : observers_) {
      one->begin(facts);
      ++begun_;
    }
  }
  void validating(const ValidationProgress& progress) const {
    for (const auto& one : observers_) one->validating(progress);
  }
  void step(const StepRecord& record) const {
    for (const auto& one : observers_) one->step(record);
  }
  void sample(std::int64_t step, const std::string& text) const {
    for (const auto& one : observers_) one->sample(step, text);
  }
  void notice(const std::string& text) const {
    for (const auto& one : observers_) one->notice(text);
  }
  void warning(const std::string& text) const {
    for (const auto& one : observers_) one->warning(text);
  }
  void end(const RunEnd& end) const {
    for (const auto& one : observers_.first(begun_)) one->end(end);
  }

 private:
  std::span<const std::unique_ptr<RunObserver>> observers_;
  std::size_t begun_ = 0;
};

}  // namespace lockstep::train
