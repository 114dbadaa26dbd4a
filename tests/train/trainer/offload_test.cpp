// What lies in other tiers than the device trains to the same bits, and takes what was planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/memory/smaller_run.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::offload_test {
namespace {

using nn::Partition;
using nn::Tiers;
using parallel::Reduction;
using ::testing::HasSubstr;

constexpr int kSequences = 4;
constexpr int kTokens = 7;

constexpr Tiers kOptimizer{.optimizer = Tier::kHost};
constexpr Tiers kGradients{.gradients = Tier::kHost};
constexpr Tiers kParameters{.parameters = Tier::kHost};
constexpr Tiers kActivations{.activations = Tier::kHost};
constexpr Tiers kZeroOffload{.optimizer = Tier::kHost, .gradients = Tier::kHost};
constexpr Tiers kStates{
    .optimizer = Tier::kHost, .gradients = Tier::kHost, .parameters = Tier::kHost};
constexpr Tiers kAll{.optimizer = Tier::kHost,
                     .gradients = Tier::kHost,
                     .parameters = Tier::kHost,
                     .activations = Tier::kHost};

constexpr Tiers in_place(Tiers tiers) {
  tiers.in_place = true;
  return tiers;
}

TrainOptions options_of(int micro, const Tiers& tiers = {}) {
  TrainOptions options = tiny_options();
  options.model.layers = 4;
  options.batch = {.sequence = kTokens, .sequences = kSequences, .micro = micro};
  options.parallel.reduction = Reduction::kTree;
  options.model.dropout = 0.1;
  options.threads = 1;
  options.offload.tiers = tiers;
  return options;
}

void expect_planned(const Trainer& trainer, const nn::MemoryPlan& plan) {
  EXPECT_EQ(trainer.device_memory().peak(), plan.bytes(Tier::kDevice));
  EXPECT_EQ(trainer.host_memory().peak(), plan.bytes(Tier::kHost));
}

Learned train(TrainOptions options, int workers, int steps = 2) {
  options.batch.workers = workers;
  Learned result;
  std::mutex mutex;
  run_workers(options, [&](Trainer& trainer, Communicator*) {
    trainer.start();
    Sequences sequences(kSequences, kTokens);
    const auto batches = sequences.batches(solved(options.batch).micro);
    Learned mine;
    run_steps(trainer, steps, [&](const StepMetrics& metrics) {
      mine.losses.push_back(metrics.loss);
      mine.norms.push_back(metrics.gradient_norm);
      trainer.replica().evaluate(batches.front());
    });
    expect_planned(trainer, trainer.replica().plan());
    const std::lock_guard lock(mutex);
    result.losses = mine.losses;
    result.norms = mine.norms;
    take_states(trainer.replica(), result.states);
  });
  return result;
}

TEST(Offload, ChangesNoBitOfOneWorkersTraining) {
  for (const int micro : {1, 4}) {
    for (const Reduction reduction : {Reduction::kTree, Reduction::kFast}) {
      TrainOptions options = options_of(micro);
      options.parallel.reduction = reduction;
      const Learned without = train(options, 1);
      EXPECT_LT(without.losses.back(), without.losses.front());
      for (const Tiers& tiers : {kOptimizer, kGradients, kParameters, kActivations, kZeroOffload,
                                 kStates, kAll, in_place(kParameters), in_place(kAll)}) {
        options.offload.tiers = tiers;
        EXPECT_EQ(train(options, 1), without) << tiers_text(tiers) << micro;
      }
    }
  }
}

TEST(Offload, ChangesNoBitAtAnyStageAndNumberOfWorkers) {
  const Learned without = train(options_of(1), 1);
  for (const int workers : {2, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const Tiers& tiers :
           {kOptimizer, kGradients, kParameters, kAll, in_place(kParameters), in_place(kAll)}) {
        if (tiers.in_place && stage == 3) continue;
        TrainOptions options = options_of(1, tiers);
        options.parallel.zero = stage;
        options.parallel.partition = tiers == kAll ? Partition::kLayer : Partition::kTensor;
        EXPECT_EQ(train(options, workers), without)
            << workers << " workers, stage " << stage << ", " << tiers_text(tiers);
      }
    }
  }
}

TEST(Offload, ChangesNoBitInAnyPrecisionAndRecomputation) {
  for (const auto precision : plan::kAllPrecisions) {
    for (const auto recompute :
         {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
      TrainOptions options = options_of(2);
      options.precision = precision;
      options.recompute = recompute;
      options.parallel.reduction = Reduction::kFast;
      options.optimizer.max_grad_norm = 0.5;
      const Learned without = train(options, 1);
      for (const Tiers& tiers :
           {kOptimizer, kGradients, kParameters, kActivations, kAll, in_place(kAll)}) {
        options.offload.tiers = tiers;
        EXPECT_EQ(train(options, 1), without)
            << plan::name(precision) << " " << name(recompute) << " " << tiers_text(tiers);
      }
    }
  }
}

TEST(Offload, UpdatesBlocksBesideBackwardWhereNothingIsClipped) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    TrainOptions options = options_of(2);
    options.precision = precision;
    options.optimizer.max_grad_norm = 0;
    const Learned without = train(options, 1);
    for (const Tiers& tiers : {kOptimizer, kZeroOffload, kAll, in_place(kAll)}) {
      options.offload.tiers = tiers;
      options.parallel.zero = 0;
      EXPECT_EQ(train(options, 1), without) << plan::name(precision) << " " << tiers_text(tiers);
      for (int stage = 1; stage <= (tiers.in_place ? 2 : 3); ++stage) {
        options.parallel.zero = stage;
        EXPECT_EQ(train(options, 2), without) << stage << " " << tiers_text(tiers);
      }
    }
  }
}

TEST(Offload, WorkersWithUnequalSharesTrainAsWithoutIt) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const bool holds : {false, true}) {
      TrainOptions options = options_of(1);
      options.parallel.reduction = Reduction::kFast;
      options.parallel.zero = stage;
      options.parallel.no_sync = holds;
      const Learned without = train(options, 3);
      for (const Tiers& tiers : {kGradients, kAll}) {
        options.offload.tiers = tiers;
        EXPECT_EQ(train(options, 3), without) << stage << " " << tiers_text(tiers);
      }
    }
  }
}

TEST(Offload, EveryModelTrainsWithAllOfItOnTheHost) {
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    for (const auto kind : {optim::OptimizerKind::kAdam, optim::OptimizerKind::kSgd}) {
      TrainOptions options = options_of(2);
      options.model.family = family;
      options.model.tie_word_embeddings =
          family == ModelFamily::kLlama ? TieChoice::kUntied : TieChoice::kTied;
      options.optimizer.kind = kind;
      const Learned without = train(options, 1);
      options.offload.tiers = kAll;
      for (const int most : {1, 2, 5}) {
        options.parallel.max_unsharded_blocks = most;
        EXPECT_EQ(train(options, 1), without) << name(family) << " " << most;
      }
    }
  }
}

nn::MemoryPlan plan_of(const TrainOptions& options) {
  const auto ops = make_cpu_ops(1);
  return plan_run(options, *ops);
}

TEST(Offload, LeavesTheDeviceWithoutWhatItMoves) {
  TrainOptions options = options_of(4);
  options.model.hidden = 64;
  options.model.vocabulary = 512;
  options.precision = plan::Precision::kBf16;
  options.parallel.reduction = Reduction::kFast;
  const nn::MemoryPlan whole = plan_of(options);
  EXPECT_EQ(whole.bytes(Tier::kHost), 0u);
  const std::size_t elements = whole.flat.elements();

  options.offload.tiers = kOptimizer;
  EXPECT_EQ(plan_of(options).bytes(Tier::kDevice), whole.bytes() - 12 * elements);
  // ZeRO-Offload: two bytes a parameter, and what is in flight.
  options.offload.tiers = kZeroOffload;
  const std::size_t zero_offload = plan_of(options).bytes(Tier::kDevice);
  for (const GroupBytes& group : plan_of(options).by_class(Tier::kDevice)) {
    EXPECT_TRUE(group.group != "optimizer" && group.group != "gradients") << group.bytes;
    EXPECT_TRUE(group.group != "parameters" || group.bytes == 2 * elements) << group.bytes;
  }
  options.offload.tiers = kStates;
  const nn::MemoryPlan states = plan_of(options);
  EXPECT_GE(states.bytes(Tier::kHost), 16 * elements);
  EXPECT_LT(states.bytes(Tier::kHost), 16 * elements + 4096);
  EXPECT_LT(states.bytes(Tier::kDevice), zero_offload) << "a window of blocks takes less";
  options.offload.tiers = kAll;
  EXPECT_LT(plan_of(options).bytes(Tier::kDevice), states.bytes(Tier::kDevice));
}

// Straight from the host: what a window of blocks would take of the device is free.
TEST(Offload, InPlaceLeavesTheDeviceWithoutParameters) {
  TrainOptions options = options_of(4, kStates);
  options.model.hidden = 64;
  options.model.vocabulary = 512;
  const nn::MemoryPlan window = plan_of(options);
  options.offload.tiers = in_place(kStates);
  const nn::MemoryPlan none = plan_of(options);
  EXPECT_EQ(none.bytes(Tier::kHost), window.bytes(Tier::kHost));
  EXPECT_LT(none.bytes(Tier::kDevice), window.bytes(Tier::kDevice));
  for (const GroupBytes& group : none.by_class(Tier::kDevice)) {
    EXPECT_TRUE(group.group != "gathered" && group.group != "parameters") << group.bytes;
  }
  TrainOptions free = options;
  free.offload.tiers = {};
  options.device_limit = none.bytes(Tier::kDevice);  // the window is over it
  EXPECT_EQ(train(options, 1), train(free, 1));
}

TEST(Offload, InPlaceIsRefusedWhereParametersAreNotWholeOnTheHost) {
  const auto refusal = [](const Tiers& tiers, int stage, int workers) {
    parallel::ParallelOptions options;
    options.zero = stage;
    try {
      parallel::check({.tiers = tiers, .folder = {}, .bandwidth = {}}, options,
                      {.workers = workers});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(in_place({}), 0, 1), HasSubstr("set offload.parameters = \"host\""));
  EXPECT_THAT(refusal(in_place({.optimizer = Tier::kFile, .parameters = Tier::kFile}), 0, 1),
              HasSubstr("offload.parameters = \"file\""));
  EXPECT_THAT(refusal(in_place(kParameters), 3, 2), HasSubstr("use a lower stage"));
  EXPECT_EQ(refusal(in_place(kParameters), 2, 2), "");
  EXPECT_EQ(refusal(in_place(kParameters), 3, 1), "");
}

TEST(Offload, ADeviceLimitIsAHardOne) {
  TrainOptions options = options_of(4);
  const std::size_t needed = plan_of(options).bytes(Tier::kDevice);
  MemoryBudget budget("device", needed - 1);
  const auto ops = make_cpu_ops(1);
  try {
    const nn::Replica replica(model_of(options), plan_run(options, *ops), *ops,
                              {.symmetric = {}, .device = &budget});
    FAIL() << "more than there is was given";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the limit is"));
  }
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_EQ(budget.peak(), 0u);
}

TEST(Offload, ARunOverTheDeviceLimitIsToldWhatToMove) {
  const auto ops = make_cpu_ops(1);
  TrainOptions options = options_of(4);
  options.device_limit = plan_of(options).bytes(Tier::kDevice) - 1;
  const SmallerRun fit = nearest_run(options, *ops, 0);
  ASSERT_TRUE(fit.fits);
  EXPECT_EQ(fit.tiers, kOptimizer);
  EXPECT_LE(fit.device_bytes, options.device_limit);
  try {
    Trainer(options, *ops);
    FAIL() << "a run over its limit was begun";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("on the device, over memory.device_limit"));
    EXPECT_THAT(error.what(), HasSubstr("offload.optimizer = \"host\""));
  }
}

TEST(Offload, AModelWhoseStatesAreFourTimesTheDeviceTrains) {
  TrainOptions options = options_of(1);
  options.model.hidden = 64;
  options.model.layers = 12;
  options.parallel.reduction = Reduction::kFast;
  options.precision = plan::Precision::kBf16;
  options.batch.sequences = options.batch.micro = 1;
  const Learned without = train(options, 1, 2);
  const std::size_t states = 16 * plan_of(options).flat.elements();
  options.device_limit = states / 4;
  EXPECT_GT(plan_of(options).bytes(Tier::kDevice), options.device_limit);
  options.offload.tiers = kAll;
  options.recompute = RecomputeChoice::kFull;
  EXPECT_LE(plan_of(options).bytes(Tier::kDevice), options.device_limit);
  EXPECT_EQ(train(options, 1, 2), without);
}

}  // namespace
}  // namespace lockstep::train::offload_test
