// FP8 on several workers, as threads: all of them scale alike, and replicas keep the same bits.
#pragma once

#include <gtest/gtest.h>

#include <mutex>

#include "tests/train/run/thread_workers.h"
#include "tests/train/trainer/fp8_cases.h"

namespace lockstep::train::fp8_test {

struct WorkersOutcome {
  std::vector<std::vector<float>> scaling;  // after each step
  std::vector<float> master;
  std::vector<double> losses;
  friend bool operator==(const WorkersOutcome&, const WorkersOutcome&) = default;
};

// Steps of `sequences` sequences in micro-batches of two.
inline WorkersOutcome train_workers(Device device, int workers, int sequences, int steps,
                                    plan::Precision precision = plan::Precision::kFp8) {
  TrainOptions options = options_of(precision, ModelFamily::kGpt2);
  options.batch = {.sequence = kLength, .sequences = sequences, .micro = 2, .workers = workers};
  options.node_place.ranks = workers;
  options.parallel.device = device;
  options.share_device = true;
  options.threads = 1;
  WorkersOutcome outcome;
  std::mutex mutex;
  run_workers(options, [&](Trainer& trainer, Communicator* others) {
    trainer.start();
    WorkersOutcome mine;
    run_steps(trainer, steps, [&](const StepMetrics& metrics) {
      mine.losses.push_back(metrics.loss);
      mine.scaling.push_back(numbers_of(trainer.replica().scaling()));
    });
    mine.master = numbers_of(trainer.replica().states().master);
    {
      const std::lock_guard lock(mutex);
      if (outcome.losses.empty()) outcome = mine;
      EXPECT_EQ(mine, outcome);
    }
    if (others != nullptr) others->barrier();
  });
  return outcome;
}

inline void expect_workers_scale_alike(Device device) {
  constexpr int kTrainedSteps = 12;
  const WorkersOutcome alone = train_workers(device, 1, 8, kTrainedSteps);
  for (const int workers : {2, 3}) {
    const WorkersOutcome outcome = train_workers(device, workers, 8, kTrainedSteps);
    EXPECT_LT(outcome.losses.back(), outcome.losses.front());
    for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
      EXPECT_NEAR(outcome.losses[i], alone.losses[i], 0.05 * alone.losses.front()) << "step " << i;
    }
    EXPECT_NE(outcome.losses,
              train_workers(device, workers, 8, kTrainedSteps, plan::Precision::kBf16).losses);
    // The largest magnitudes are those of all micro-batches, whoever had them: near those of one
    // worker.
    const std::vector<float>& first = outcome.scaling.front();
    for (std::size_t row = 0; row < first.size(); row += ops::kScaling) {
      const float amax = alone.scaling.front()[row + ops::kHistory];
      EXPECT_GT(first[row + ops::kScale], 0);
      EXPECT_NEAR(first[row + ops::kHistory], amax, 0.2f * amax) << row / ops::kScaling;
    }
  }
}

}  // namespace lockstep::train::fp8_test
