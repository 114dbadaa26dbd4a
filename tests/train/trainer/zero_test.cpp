// Workers that shard their states, as threads: they do what one worker does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::zero_test {
namespace {

using nn::Partition;
using parallel::Reduction;

constexpr int kSequences = 8;
constexpr int kTokens = 7;

struct Result : Learned {
  std::uint64_t bytes_sent = 0;  // by worker 0 in a step
  friend bool operator==(const Result& a, const Result& b) {
    return static_cast<const Learned&>(a) == b;
  }
};

TrainOptions options_of(int zero, int micro, Reduction reduction) {
  TrainOptions options = tiny_options();
  options.batch = {.sequence = kTokens, .sequences = kSequences, .micro = micro};
  options.parallel.reduction = reduction;
  options.parallel.zero = zero;
  options.model.dropout = 0.1;
  options.threads = 1;
  return options;
}

Result train(TrainOptions options, int workers, int steps = 3) {
  options.batch.workers = workers;
  Result result;
  std::mutex mutex;
  run_workers(options, [&](Trainer& trainer, Communicator*) {
    trainer.start();
    Result mine;
    run_steps(trainer, steps, [&](const StepMetrics& metrics) {
      mine.losses.push_back(metrics.loss);
      mine.norms.push_back(metrics.gradient_norm);
      mine.bytes_sent = metrics.costs.front().bytes_sent;
    });
    const std::lock_guard lock(mutex);
    if (result.losses.empty()) result.losses = mine.losses;
    EXPECT_EQ(mine.losses, result.losses);
    result.norms = mine.norms;
    result.bytes_sent = mine.bytes_sent;
    take_states(trainer.replica(), result.states);
  });
  return result;
}

TEST(Zero, TreesGiveTheBitsOfOneWorkerAtEveryStage) {
  for (const int micro : {1, 2}) {
    const Result alone = train(options_of(0, micro, Reduction::kTree), 1);
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    for (const int workers : {2, 4, 8}) {
      if (workers * micro > kSequences) continue;
      for (int stage = 1; stage <= 3; ++stage) {
        for (const Partition partition : {Partition::kTensor, Partition::kLayer}) {
          TrainOptions options = options_of(stage, micro, Reduction::kTree);
          options.parallel.partition = partition;
          EXPECT_EQ(train(options, workers), alone)
              << workers << " workers, stage " << stage << ", micro " << micro;
        }
      }
    }
  }
}

TEST(Zero, RecomputationChangesNoBit) {
  TrainOptions options = options_of(3, 2, Reduction::kTree);
  options.recompute = RecomputeChoice::kNone;
  const Result none = train(options, 2);
  for (const auto recompute : {RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
    options.recompute = recompute;
    EXPECT_EQ(train(options, 2), none);
  }
}

TEST(Zero, DoesWhatOneWorkerDoesHoweverAStepIsShared) {
  for (const int micro : {1, 2}) {
    const Result alone = train(options_of(0, micro, Reduction::kFast), 1);
    for (const int workers : {2, 3}) {
      for (int stage = 1; stage <= 3; ++stage) {
        TrainOptions options = options_of(stage, micro, Reduction::kFast);
        expect_near(train(options, workers), alone, 2e-5, 2e-3);
        options.parallel.no_sync = true;
        expect_near(train(options, workers), alone, 2e-5, 2e-3);
        options.parallel.overlap = false;
        options.parallel.max_unsharded_blocks = 1;
        expect_near(train(options, workers), alone, 2e-5, 2e-3);
      }
    }
  }
}

TEST(Zero, LearnsInSixteenBitsAsDataParallelDoes) {
  for (const auto precision : {plan::Precision::kBf16, plan::Precision::kF16}) {
    TrainOptions options = options_of(0, 4, Reduction::kFast);
    options.precision = precision;
    options.optimizer.max_grad_norm = 0.5;
    const Result ddp = train(options, 2, 10);
    for (int stage = 1; stage <= 3; ++stage) {
      options.parallel.zero = stage;
      EXPECT_EQ(train(options, 2, 10), ddp) << stage;
    }
  }
}

TEST(Zero, TrainsTiedTablesAndOwnOnesWithEveryOptimizer) {
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    for (const auto kind : {optim::OptimizerKind::kAdam, optim::OptimizerKind::kSgd}) {
      TrainOptions options = options_of(0, 1, Reduction::kTree);
      options.model.family = family;
      options.model.tie_word_embeddings =
          family == ModelFamily::kLlama ? TieChoice::kUntied : TieChoice::kTied;
      options.optimizer.kind = kind;
      const Result alone = train(options, 1);
      for (int stage = 1; stage <= 3; ++stage) {
        options.parallel.zero = stage;
        EXPECT_EQ(train(options, 4), alone) << name(family) << " at stage " << stage;
      }
    }
  }
}

TEST(Zero, SendsTwiceTheParametersAndThreeTimesAtStageThree) {
  for (const Partition partition : {Partition::kTensor, Partition::kLayer}) {
    TrainOptions options = options_of(1, 4, Reduction::kFast);
    options.parallel.partition = partition;
    options.batch.workers = 2;
    const auto ops = make_cpu_ops(1);
    for (int stage = 1; stage <= 3; ++stage) {
      options.parallel.zero = stage;
      const nn::FlatParameters flat =
          nn::plan_memory(model_of(options), setup_of(options), *ops, nn::OptimizerState::kMoments,
                          {.workers = 2, .optimizer = true, .partition = partition})
              .flat;
      // The last block's parameters stay from its forward to its backward.
      const std::size_t head = flat.range(flat.blocks() - 1).elements;
      const std::size_t elements = stage < 3 ? 2 * flat.elements() : 3 * flat.elements() - head;
      EXPECT_EQ(train(options, 2).bytes_sent, elements * sizeof(float) / 2) << stage;
    }
  }
}

TEST(Zero, IsRefusedWhereItDoesNotGoWithTheRest) {
  parallel::ParallelOptions options;
  options.zero = 2;
  options.strategy = parallel::StrategyKind::kParameterServer;
  EXPECT_THROW(parallel::check(options, 2), Error);
  options.strategy = parallel::StrategyKind::kDdp;
  EXPECT_NO_THROW(parallel::check(options, 2));
  options.algorithm = "ring";
  EXPECT_THROW(parallel::check(options, 2), Error);
  options.algorithm = "auto";
  options.compression.compression = parallel::Compression::kInt8;
  EXPECT_THROW(parallel::check(options, 2), Error);
  options.compression.compression = parallel::Compression::kNone;
  options.reshard_after_forward = true;  // of parameters, which stage 3 gathers
  EXPECT_THROW(parallel::check(options, 2), Error);
  options.zero = 3;
  EXPECT_NO_THROW(parallel::check(options, 2));
}

}  // namespace
}  // namespace lockstep::train::zero_test
