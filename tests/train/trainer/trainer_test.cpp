#include "lockstep/train/trainer/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/device_memory.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train {
namespace {

using plan::Precision;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data(), tensor.data() + tensor.bytes()};
}

using MakeOps = std::unique_ptr<Ops> (*)();

std::unique_ptr<Ops> two_threads() { return make_cpu_ops(2); }

constexpr MakeOps kBothOps[] = {make_reference_ops, two_threads};

// Trains a few steps; the bits of the master copy.
std::vector<std::byte> trained(MakeOps make_ops, const TrainOptions& options, int steps) {
  const auto ops = make_ops();
  Trainer trainer(options, *ops);
  Sequences sequences(4, 7);
  for (int i = 0; i < steps; ++i) trainer.step(sequences.batches(options.batch.micro));
  return bytes_of(trainer.replica().states().master);
}

TEST(Trainer, LearnsABatchByHeartInEveryPrecisionAndWithEveryOptimizer) {
  for (const Precision precision : plan::kAllPrecisions) {
    for (const auto kind :
         {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kAdam, optim::OptimizerKind::kSgd}) {
      TrainOptions options = tiny_options(precision);
      options.optimizer.kind = kind;
      options.optimizer.weight_decay = 0;
      if (kind == optim::OptimizerKind::kSgd) options.schedule.learning_rate = 0.3;
      const auto ops = two_threads();
      Trainer trainer(options, *ops);
      Sequences sequences(4, 7);
      const auto batches = sequences.batches(4);
      const double first = trainer.step(batches).loss;
      EXPECT_NEAR(first, std::log(kVocabulary), 0.1);
      double last = first;
      for (int i = 0; i < 40; ++i) last = trainer.step(batches).loss;
      EXPECT_LT(last, first - 0.7) << name(precision) << ", " << name(kind);
    }
  }
}

TEST(Trainer, MicroBatchesAddUpToTheSameStep) {
  for (const int micro : {1, 2}) {
    TrainOptions options = tiny_options();
    const auto ops = make_reference_ops();
    Trainer whole(options, *ops);
    options.batch.micro = micro;
    options.batch.accumulation = 4 / micro;
    Trainer parts(options, *ops);
    Sequences sequences(4, 7);
    for (int i = 0; i < 3; ++i) {
      const StepMetrics at_once = whole.step(sequences.batches(4));
      const StepMetrics added_up = parts.step(sequences.batches(micro));
      EXPECT_NEAR(at_once.loss, added_up.loss, 1e-5);
      EXPECT_NEAR(at_once.gradient_norm, added_up.gradient_norm, 1e-4);
      EXPECT_EQ(at_once.tokens, 28);
      EXPECT_EQ(added_up.tokens, 28);
    }
  }
}

TEST(Trainer, TheSameOptionsGiveTheSameBits) {
  for (const MakeOps make_ops : kBothOps) {
    for (const Precision precision : plan::kAllPrecisions) {
      TrainOptions options = tiny_options(precision);
      options.model.dropout = 0.1;
      const auto once = trained(make_ops, options, 3);
      EXPECT_EQ(trained(make_ops, options, 3), once);
      for (const RecomputeChoice recompute :
           {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
        options.recompute = recompute;
        EXPECT_EQ(trained(make_ops, options, 3), once)
            << make_ops()->name() << ", " << name(precision) << ", " << name(recompute);
      }
      options.seed = 2;
      EXPECT_NE(trained(make_ops, options, 3), once);
    }
  }
}

TEST(Trainer, ComputesWithTheRoundedMasterCopy) {
  const auto ops = make_reference_ops();
  Trainer trainer(tiny_options(Precision::kBf16), *ops);
  Sequences sequences(4, 7);
  trainer.step(sequences.batches(4));
  const nn::States& states = trainer.replica().states();
  const auto master = states.master.as<float>();
  const auto rounded = states.parameters.as<BFloat16>();
  for (std::size_t i = 0; i < master.size(); ++i) ASSERT_EQ(rounded[i], to_bfloat16(master[i]));
}

TEST(Trainer, ClipsTheStepToTheNorm) {
  TrainOptions options = tiny_options();
  options.optimizer = {
      .kind = optim::OptimizerKind::kSgd, .momentum = 0, .weight_decay = 0, .max_grad_norm = 0.25};
  options.schedule.learning_rate = 2;
  const auto ops = make_reference_ops();
  Trainer trainer(options, *ops);
  const auto master = trainer.replica().states().master.as<float>();
  const std::vector<float> before(master.begin(), master.end());
  Sequences sequences(4, 7);
  const StepMetrics metrics = trainer.step(sequences.batches(4));
  ASSERT_GT(metrics.gradient_norm, 0.25);
  double moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += std::pow(master[i] - before[i], 2);
  EXPECT_NEAR(std::sqrt(moved), 2 * 0.25, 1e-4);
}

TEST(Trainer, TheLearningRateFollowsItsSchedule) {
  TrainOptions options = tiny_options();
  options.schedule = {.learning_rate = 1, .warmup_steps = 4};
  const auto ops = make_reference_ops();
  Trainer trainer(options, *ops);
  Sequences sequences(4, 7);
  for (const double rate : {0.25, 0.5, 0.75, 1.0, 1.0}) {
    EXPECT_EQ(trainer.step(sequences.batches(4)).rate, rate);
  }
}

TEST(Trainer, AStepThatOverflowsChangesNothingButTheScale) {
  TrainOptions options = tiny_options(Precision::kF16);
  options.loss_scale.initial = 0x1p30;
  options.loss_scale.growth_interval = 1000;
  const auto ops = make_reference_ops();
  Trainer trainer(options, *ops);
  const nn::States& states = trainer.replica().states();
  const auto master = bytes_of(states.master);
  const auto parameters = bytes_of(states.parameters);
  Sequences sequences(4, 7);
  const StepMetrics first = trainer.step(sequences.batches(4));
  EXPECT_TRUE(first.skipped);
  EXPECT_EQ(first.loss_scale, 0x1p30);
  EXPECT_TRUE(std::isfinite(first.loss)) << "the loss itself is not scaled";
  EXPECT_EQ(trainer.state().loss_scale->scale, 0x1p29);
  EXPECT_EQ(trainer.state().updates, 0);
  EXPECT_EQ(bytes_of(states.master), master);
  EXPECT_EQ(bytes_of(states.parameters), parameters);
  for (const std::byte one : bytes_of(states.first_moment)) ASSERT_EQ(one, std::byte{0});

  StepMetrics metrics = first;
  for (int i = 0; i < 30 && metrics.skipped; ++i) metrics = trainer.step(sequences.batches(4));
  EXPECT_FALSE(metrics.skipped) << "it recovers";
  EXPECT_EQ(trainer.state().updates, 1);
  EXPECT_NE(bytes_of(states.master), master);
  EXPECT_NEAR(metrics.gradient_norm, 1, 2) << "the norm is that without the scale";
}

TEST(Trainer, TheLossScaleGrowsAgainAndGradientsDoNotFeelIt) {
  TrainOptions options = tiny_options(Precision::kF16);
  options.loss_scale = {.initial = 64, .growth_interval = 2};
  const auto ops = make_reference_ops();
  Trainer trainer(options, *ops);
  Sequences sequences(4, 7);
  std::vector<double> scales;
  for (int i = 0; i < 5; ++i) scales.push_back(trainer.step(sequences.batches(4)).loss_scale);
  EXPECT_THAT(scales, ::testing::ElementsAre(64, 64, 128, 128, 256));
}

TEST(Trainer, AGradientThatIsNoNumberLeavesTheParametersAlone) {
  const auto ops = make_reference_ops();
  Trainer trainer(tiny_options(), *ops);
  Sequences sequences(4, 7);
  trainer.replica().parameter("layer.1.norm2.gain").as<float>()[3] =
      std::numeric_limits<float>::quiet_NaN();
  const auto before = bytes_of(trainer.replica().states().master);
  EXPECT_TRUE(trainer.step(sequences.batches(4)).skipped);
  EXPECT_EQ(bytes_of(trainer.replica().states().master), before);
}

TEST(Trainer, GoesOnFromItsStateAsIfItHadNotStopped) {
  const TrainOptions options = tiny_options(Precision::kBf16);
  const auto ops = make_reference_ops();
  Sequences sequences(4, 7);
  Trainer first(options, *ops);
  for (int i = 0; i < 2; ++i) first.step(sequences.batches(4));
  Trainer second(options, *ops);
  const auto hand_over = [&](const Tensor& to, const Tensor& from) { copy(to, from); };
  const nn::States& from = first.replica().states();
  const nn::States& to = second.replica().states();
  hand_over(to.parameters, from.parameters);
  hand_over(to.master, from.master);
  hand_over(to.first_moment, from.first_moment);
  hand_over(to.second_moment, from.second_moment);
  second.set_state(first.state());
  EXPECT_EQ(first.step(sequences.batches(4)).loss, second.step(sequences.batches(4)).loss);
  EXPECT_EQ(bytes_of(from.master), bytes_of(to.master));
}

TEST(Trainer, RefusesAStepWithoutTargets) {
  const auto ops = make_reference_ops();
  Trainer trainer(tiny_options(), *ops);
  EXPECT_THROW(trainer.step({}), Error);
  EXPECT_EQ(trainer.state().steps, 0);
}

void expect_planned_bytes(MakeOps make_ops, const TrainOptions& options) {
  const auto ops = make_ops();
  Sequences sequences(4, 7);
  auto batches = sequences.batches(4);
  std::vector<std::int32_t> types(28);
  batches[0].types = tensor_of(std::span(types), {4, 7});
  if (translates(options)) {
    batches[0].shape.source_sequence = 7;
    batches[0].source = batches[0].tokens;
  }
  const std::size_t before = memory_in_use({});
  reset_peak_memory({});
  Trainer trainer(options, *ops);
  trainer.step(batches);
  EXPECT_EQ(peak_memory({}) - before, trainer.replica().plan().bytes())
      << ops->name() << ", " << name(options.model.family) << ", " << plan::name(options.precision)
      << ", " << name(options.recompute);
}

TEST(Trainer, UsesThePlannedBytesToTheByte) {
  for (const MakeOps make_ops : kBothOps) {
    for (const plan::Family family : plan::kAllFamilies) {
      for (const Precision precision : plan::kAllPrecisions) {
        for (const RecomputeChoice recompute :
             {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
          TrainOptions options = tiny_options(precision);
          options.model.family = model_family(family);
          options.recompute = recompute;
          expect_planned_bytes(make_ops, options);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::train
