// Workers on one GPU, as threads: they do what one worker does, with the memory that is planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/tensor/cuda/gpu.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::cuda_workers_test {
namespace {

using lockstep::testing::kGpu;
using nn::Partition;
using parallel::Reduction;

class CudaWorkers : public lockstep::testing::OnGpu<::testing::Test> {};

constexpr int kSequences = 8;
constexpr int kSteps = 4;

TrainOptions options_of(int zero, int micro, Reduction reduction,
                        plan::Precision precision = plan::Precision::kF32) {
  TrainOptions options = tiny_options(precision);
  options.batch = {.sequence = 7, .sequences = kSequences, .micro = micro};
  options.parallel.reduction = reduction;
  options.parallel.zero = zero;
  options.parallel.device = kGpu;
  options.device = "cuda";
  options.share_device = true;
  options.model.dropout = 0.1;
  return options;
}

Learned train(TrainOptions options, int workers) {
  options.batch.workers = workers;
  options.node_place.ranks = workers;
  Learned learned;
  std::mutex mutex;
  run_workers(options, [&](Trainer& trainer, Communicator* others) {
    trainer.start();
    Learned mine;
    run_steps(trainer, kSteps, [&](const StepMetrics& metrics) {
      mine.losses.push_back(metrics.loss);
      mine.norms.push_back(metrics.gradient_norm);
    });
    {
      const std::lock_guard lock(mutex);
      if (learned.losses.empty()) learned.losses = mine.losses;
      EXPECT_EQ(mine.losses, learned.losses);
      learned.norms = mine.norms;
      take_states(trainer.replica(), learned.states);
    }
    if (others != nullptr) others->barrier();  // memory of a GPU is freed when all are done
  });
  return learned;
}

TEST_F(CudaWorkers, TreesGiveTheBitsOfOneWorkerAtEveryStage) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const int micro : {1, 2}) {
      const Learned alone = train(options_of(0, micro, Reduction::kTree, precision), 1);
      EXPECT_LT(alone.losses.back(), alone.losses.front());
      for (const int workers : {2, 4}) {
        for (int stage = 0; stage <= 3; ++stage) {
          TrainOptions options = options_of(stage, micro, Reduction::kTree, precision);
          EXPECT_EQ(train(options, workers), alone)
              << workers << " workers, stage " << stage << ", micro " << micro;
          options.parallel.partition = Partition::kLayer;
          if (stage > 0) {
            EXPECT_EQ(train(options, workers), alone) << workers << " workers, stage " << stage;
          }
        }
      }
    }
  }
}

TEST_F(CudaWorkers, DoWhatOneWorkerDoesHoweverAStepIsShared) {
  const Learned alone = train(options_of(0, 1, Reduction::kFast), 1);
  for (const int workers : {2, 3}) {
    for (int stage = 0; stage <= 3; ++stage) {
      TrainOptions options = options_of(stage, 1, Reduction::kFast);
      expect_near(train(options, workers), alone, 2e-5, 2e-3);
      options.parallel.no_sync = stage > 1;
      options.parallel.overlap = false;
      expect_near(train(options, workers), alone, 2e-5, 2e-3);
    }
  }
}

TEST_F(CudaWorkers, TheSameSettingsGiveTheSameBits) {
  for (int stage = 0; stage <= 3; ++stage) {
    const TrainOptions options = options_of(stage, 2, Reduction::kFast, plan::Precision::kBf16);
    EXPECT_EQ(train(options, 3), train(options, 3)) << "stage " << stage;
  }
}

TEST_F(CudaWorkers, AllocateWhatIsPlanned) {
  for (const auto& [workers, reduction, partition] :
       {std::tuple(2, Reduction::kTree, Partition::kTensor),
        std::tuple(4, Reduction::kFast, Partition::kTensor),
        std::tuple(2, Reduction::kFast, Partition::kLayer)}) {
    for (int stage = 0; stage <= 3; ++stage) {
      TrainOptions options = options_of(stage, 1, reduction, plan::Precision::kBf16);
      options.parallel.partition = partition;
      options.batch.workers = workers;
      options.node_place.ranks = workers;
      const std::size_t before = memory_in_use(kGpu);
      std::atomic<std::size_t> planned{0};
      run_workers(options, [&](Trainer& trainer, Communicator* others) {
        trainer.start();
        run_steps(trainer, 2, [](const StepMetrics&) {});
        planned += trainer.replica().plan().bytes(Tier::kDevice);
        others->barrier();
        EXPECT_EQ(memory_in_use(kGpu) - before, planned) << stage << " " << name(reduction);
        others->barrier();
      });
    }
  }
}

}  // namespace
}  // namespace lockstep::train::cuda_workers_test
