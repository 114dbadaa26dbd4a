// The micro-batches of this worker's steps. Those of the next step can be read while a GPU computes
// the current one.
#pragma once

#include <optional>
#include <span>

#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

class StepBatches {
 public:
  // Both must outlive it.
  StepBatches(BatchSource& source, parallel::Strategy& strategy, const parallel::StepPlan& plan,
              std::int64_t last_step)
      : source_(source), strategy_(strategy), plan_(plan), last_step_(last_step) {}

  // For steps of which two are read at once: every other one is read from `second`, which has the
  // same data.
  void take_turns(BatchSource& second) { second_ = &second; }

  // They hold until the next call, or the next but one where sources take turns.
  std::span<const nn::Batch> read(const parallel::Share& share);
  // Those that probably come after `share`; none where they are not known.
  std::span<const nn::Batch> read_after(const parallel::Share& share);
  // The same with their share.
  std::optional<Trainer::StepInput> input_after(const parallel::Share& share);
  // As read(), though others have been read since.
  std::span<const nn::Batch> read_again(const parallel::Share& share);

 private:
  struct Ahead {
    parallel::Share share;
    std::span<const nn::Batch> micro_batches;
  };

  std::span<const nn::Batch> training(const parallel::Share& share);

  BatchSource& source_;
  BatchSource* second_ = nullptr;
  parallel::Strategy& strategy_;
  const parallel::StepPlan plan_;
  const std::int64_t last_step_;
  std::optional<Ahead> ahead_;
};

}  // namespace lockstep::train
