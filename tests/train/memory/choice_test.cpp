// What is chosen by the memory there is: fits, and loses least time.
#include "lockstep/train/memory/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/system/available_memory.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train::memory_choice_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of as many workers, which share the sequences of a step.
TrainOptions shared_by(int workers) {
  TrainOptions options;
  options.model.layers = 5;
  options.model.hidden = 48;
  options.model.heads = 4;
  options.model.vocabulary = 101;
  options.batch = {.sequence = 64, .sequences = 24, .workers = workers};
  options.recompute = RecomputeChoice::kAuto;
  return options;
}

class MemoryChoices : public ::testing::Test {
 protected:
  std::size_t bytes_with(TrainOptions options, RecomputeChoice recompute) const {
    options.recompute = recompute;
    options.recompute_of_blocks.clear();
    return plan_run(options, *ops_).bytes();
  }

  const std::unique_ptr<Ops> ops_ = make_reference_ops();
};

TEST_F(MemoryChoices, AutoDoesNoMoreAgainThanTheBudgetAsksFor) {
  const TrainOptions options = shared_by(1);
  const std::size_t none = bytes_with(options, RecomputeChoice::kNone);
  const std::size_t full = bytes_with(options, RecomputeChoice::kFull);
  ASSERT_LT(full, none);
  double last = 0;
  for (std::size_t i = 0; i <= 7; ++i) {
    const std::size_t budget = none - (none - full) * i / 7;
    TrainOptions chosen = options;
    settle_recompute(chosen, *ops_, budget);
    EXPECT_LE(plan_run(chosen, *ops_).bytes(), budget);
    const double cost = step_cost(chosen, *ops_).recomputed;
    EXPECT_GE(cost, last) << "a smaller budget cannot cost less";
    EXPECT_EQ(cost == 0, i == 0);
    last = cost;
  }
}

TEST_F(MemoryChoices, ATrainerTakesWhatAutoChose) {
  TrainOptions options = shared_by(1);
  const std::size_t none = bytes_with(options, RecomputeChoice::kNone);
  const std::size_t full = bytes_with(options, RecomputeChoice::kFull);
  options.memory_limit = (none + full) / 2;
  const Trainer trainer(options, *ops_);
  const auto& modes = trainer.options().recompute_of_blocks;
  EXPECT_EQ(modes.size(), 7u);
  EXPECT_NE(modes, std::vector(7, plan::Recompute::kNone));
  EXPECT_NE(modes, std::vector(7, plan::Recompute::kFull));
  options.memory_limit = full / 2;
  EXPECT_THROW(Trainer(options, *ops_), Error);
}

// Every stage, micro-batch and way to recompute alike in all blocks.
double cheapest_by_trying(const TrainOptions& options, const Ops& ops, std::size_t budget) {
  double least = std::numeric_limits<double>::max();
  for (const BatchChoice& batch : micro_batches(options.batch)) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const auto recompute :
           {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
        TrainOptions tried = options;
        tried.batch = batch;
        tried.parallel.zero = zero;
        tried.recompute = recompute;
        if (plan_run(tried, ops).bytes() > budget) continue;
        least = std::min(least, step_cost(tried, ops).seconds());
      }
    }
  }
  return least;
}

TEST_F(MemoryChoices, NothingThatIsAlikeInAllBlocksIsCheaper) {
  const TrainOptions options = shared_by(4);
  for (const std::size_t percent : {100, 70, 50, 40, 30}) {
    const std::size_t budget =
        bytes_with(options, RecomputeChoice::kNone) * percent / std::size_t{100};
    const MemoryChoice choice = choose_memory(options, {}, *ops_, budget);
    if (!choice.fits) {
      EXPECT_EQ(cheapest_by_trying(options, *ops_, budget), std::numeric_limits<double>::max());
      continue;
    }
    EXPECT_LE(choice.bytes, budget);
    EXPECT_EQ(plan_run(choice.options, *ops_).bytes(), choice.bytes);
    EXPECT_LE(choice.cost.seconds(), cheapest_by_trying(options, *ops_, budget)) << percent;
    EXPECT_EQ(solved(choice.options.batch).sequences, 24) << "a step keeps its sequences";
  }
}

TEST_F(MemoryChoices, WhereAllFitsNothingIsSharedOutOrDoneAgain) {
  const MemoryChoice choice = choose_memory(shared_by(4), {}, *ops_, std::size_t{1} << 40);
  EXPECT_TRUE(choice.fits);
  EXPECT_EQ(choice.options.parallel.zero, 0);
  EXPECT_EQ(choice.cost.recomputed, 0);
  EXPECT_EQ(solved(choice.options.batch).micro, 6);
}

TEST_F(MemoryChoices, StatesAreSharedOutBeforeAnythingIsDoneAgain) {
  const TrainOptions options = shared_by(4);
  const std::size_t budget = bytes_with(options, RecomputeChoice::kNone) - 1;
  const MemoryChoice choice = choose_memory(options, {}, *ops_, budget);
  EXPECT_EQ(choice.options.parallel.zero, 1);
  EXPECT_EQ(choice.cost.recomputed, 0);
  EXPECT_THAT(text(choice, budget),
              AllOf(HasSubstr("parallel.zero = 1"), HasSubstr("recomputes none")));
}

TEST_F(MemoryChoices, WhatIsSetStays) {
  TrainOptions options = shared_by(4);
  options.recompute = RecomputeChoice::kSelective;
  const std::size_t whole = bytes_with(options, RecomputeChoice::kSelective);
  for (const std::size_t budget : {whole, whole / 2, whole / 4, std::size_t{1}}) {
    const MemoryChoice no_zero = choose_memory(options, {.zero = false}, *ops_, budget);
    EXPECT_EQ(no_zero.options.parallel.zero, 0);
    const MemoryChoice no_recompute = choose_memory(options, {.recompute = false}, *ops_, budget);
    EXPECT_EQ(no_recompute.options.recompute, RecomputeChoice::kSelective);
    const MemoryChoice no_micro = choose_memory(options, {.micro_batch = false}, *ops_, budget);
    EXPECT_EQ(solved(no_micro.options.batch).micro, 6);
  }
  options.parallel.strategy = parallel::StrategyKind::kParameterServer;
  const MemoryChoice served = choose_memory(options, {}, *ops_, whole / 2);
  EXPECT_EQ(served.options.parallel.zero, 0) << "servers hold the states";
}

TEST_F(MemoryChoices, SettingsAreOpenUntilSomebodySetsThem) {
  TrainOptions options;
  Config config;
  bind(config, options);
  EXPECT_TRUE(open_settings(config).zero);
  config.set("parallel.zero=0");
  EXPECT_FALSE(open_settings(config).zero) << "the default, but asked for";
  EXPECT_TRUE(open_settings(config).micro_batch);
  config.set("train.gradient_accumulation_steps=2");
  EXPECT_FALSE(open_settings(config).micro_batch);
  EXPECT_TRUE(open_settings(config).recompute);
  EXPECT_THROW(config.is_set("parallel.none"), Error);
}

TEST_F(MemoryChoices, WhereNothingFitsTheLeastIsTaken) {
  const TrainOptions options = shared_by(4);
  const MemoryChoice choice = choose_memory(options, {}, *ops_, 1000);
  EXPECT_FALSE(choice.fits);
  EXPECT_EQ(choice.options.parallel.zero, 3);
  EXPECT_EQ(solved(choice.options.batch).micro, 1);
  EXPECT_THAT(text(choice, 1000), HasSubstr("does not fit"));
}

TEST_F(MemoryChoices, ABudgetThatNobodySetIsWhatTheMachineHasFree) {
  TrainOptions options;
  EXPECT_GT(available_memory_bytes(), std::size_t{1} << 20);
  EXPECT_LT(memory_budget(options, Device{}, 2), available_memory_bytes());
  options.memory_limit = 12345;
  EXPECT_EQ(memory_budget(options, Device{}, 2), 12345u);
}

}  // namespace
}  // namespace lockstep::train::memory_choice_test
