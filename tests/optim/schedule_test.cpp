#include "lockstep/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

TEST(Schedule, WithoutWarmupAndDeclineIsConstant) {
  const ScheduleOptions options{.learning_rate = 0.5};
  for (const int step : {1, 2, 1'000'000}) EXPECT_EQ(learning_rate_at(options, step), 0.5);
}

TEST(Schedule, RisesInEqualStepsToTheRate) {
  const ScheduleOptions options{.learning_rate = 1, .warmup_steps = 4};
  EXPECT_EQ(learning_rate_at(options, 1), 0.25);
  EXPECT_EQ(learning_rate_at(options, 2), 0.5);
  EXPECT_EQ(learning_rate_at(options, 4), 1);
  EXPECT_EQ(learning_rate_at(options, 5), 1);
}

TEST(Schedule, FallsInALineToTheFloorAndStaysThere) {
  const ScheduleOptions options{.learning_rate = 2,
                                .warmup_steps = 10,
                                .decay = LearningRateDecay::kLinear,
                                .decay_steps = 20,
                                .min_lr_ratio = 0.5};
  EXPECT_EQ(learning_rate_at(options, 10), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 15), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 19), 1.1);
  EXPECT_EQ(learning_rate_at(options, 20), 1);
  EXPECT_EQ(learning_rate_at(options, 21), 1);
}

TEST(Schedule, FallsAlongHalfACosine) {
  const ScheduleOptions options{.learning_rate = 1,
                                .warmup_steps = 0,
                                .decay = LearningRateDecay::kCosine,
                                .decay_steps = 100,
                                .min_lr_ratio = 0.1};
  EXPECT_NEAR(learning_rate_at(options, 1), 1, 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 50), 0.55);
  EXPECT_GT(learning_rate_at(options, 25), 0.1 + 0.9 * 0.75) << "a cosine begins flat";
  EXPECT_EQ(learning_rate_at(options, 100), 0.1);
  for (int step = 2; step <= 100; ++step) {
    EXPECT_LT(learning_rate_at(options, step), learning_rate_at(options, step - 1)) << step;
  }
}

TEST(Schedule, StaysBetweenWarmupAndDecay) {
  const ScheduleOptions options{.learning_rate = 2,
                                .warmup_steps = 10,
                                .decay = LearningRateDecay::kLinear,
                                .stable_steps = 80,
                                .decay_steps = 100,
                                .min_lr_ratio = 0.5};
  EXPECT_EQ(learning_rate_at(options, 9), 1.8);
  for (int step = 10; step <= 90; ++step) EXPECT_EQ(learning_rate_at(options, step), 2) << step;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 91), 1.9);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 95), 1.5);
  EXPECT_EQ(learning_rate_at(options, 100), 1);
  EXPECT_EQ(learning_rate_at(options, 1000), 1);
  ScheduleOptions late = options;
  late.stable_steps = 89;
  EXPECT_NO_THROW(check(late));
  late.stable_steps = 90;
  EXPECT_THROW(check(late), Error);
}

TEST(Schedule, ADecayMustEndBehindTheWarmup) {
  EXPECT_NO_THROW(check({.warmup_steps = 10}));
  EXPECT_NO_THROW(
      check({.warmup_steps = 10, .decay = LearningRateDecay::kCosine, .decay_steps = 11}));
  EXPECT_THROW(check({.warmup_steps = 10, .decay = LearningRateDecay::kCosine, .decay_steps = 10}),
               Error);
  EXPECT_THROW(check({.decay = LearningRateDecay::kLinear}), Error);
}

TEST(Schedule, AMinimumMayBeGivenAsALearningRate) {
  const ScheduleOptions options{.learning_rate = 2,
                                .decay = LearningRateDecay::kLinear,
                                .decay_steps = 10,
                                .min_lr_ratio = 0.5,
                                .min_lr = 0.4};
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 5), 1.2);
  EXPECT_EQ(learning_rate_at(options, 10), 0.4);
  EXPECT_NO_THROW(check(options));
  EXPECT_THROW(check({.learning_rate = 0.1, .min_lr = 0.2}), Error);
}

}  // namespace
}  // namespace lockstep::optim
