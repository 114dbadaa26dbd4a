#include "lockstep/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

TEST(Schedule, WithoutWarmupAndDeclineIsConstant) {
  const ScheduleOptions options{.rate = 0.5};
  for (const int step : {1, 2, 1'000'000}) EXPECT_EQ(rate_at(options, step), 0.5);
}

TEST(Schedule, RisesInEqualStepsToTheRate) {
  const ScheduleOptions options{.rate = 1, .warmup = 4};
  EXPECT_EQ(rate_at(options, 1), 0.25);
  EXPECT_EQ(rate_at(options, 2), 0.5);
  EXPECT_EQ(rate_at(options, 4), 1);
  EXPECT_EQ(rate_at(options, 5), 1);
}

TEST(Schedule, FallsInALineToTheFloorAndStaysThere) {
  const ScheduleOptions options{
      .rate = 2, .warmup = 10, .decline = Decline::kLinear, .steps = 20, .floor = 0.5};
  EXPECT_EQ(rate_at(options, 10), 2);
  EXPECT_DOUBLE_EQ(rate_at(options, 15), 1.5);
  EXPECT_DOUBLE_EQ(rate_at(options, 19), 1.1);
  EXPECT_EQ(rate_at(options, 20), 1);
  EXPECT_EQ(rate_at(options, 21), 1);
}

TEST(Schedule, FallsAlongHalfACosine) {
  const ScheduleOptions options{
      .rate = 1, .warmup = 0, .decline = Decline::kCosine, .steps = 100, .floor = 0.1};
  EXPECT_NEAR(rate_at(options, 1), 1, 1e-3);
  EXPECT_DOUBLE_EQ(rate_at(options, 50), 0.55);
  EXPECT_GT(rate_at(options, 25), 0.1 + 0.9 * 0.75) << "a cosine begins flat";
  EXPECT_EQ(rate_at(options, 100), 0.1);
  for (int step = 2; step <= 100; ++step) {
    EXPECT_LT(rate_at(options, step), rate_at(options, step - 1)) << step;
  }
}

TEST(Schedule, ADeclineMustEndBehindTheWarmup) {
  EXPECT_NO_THROW(check({.warmup = 10}));
  EXPECT_NO_THROW(check({.warmup = 10, .decline = Decline::kCosine, .steps = 11}));
  EXPECT_THROW(check({.warmup = 10, .decline = Decline::kCosine, .steps = 10}), Error);
  EXPECT_THROW(check({.decline = Decline::kLinear}), Error);
}

}  // namespace
}  // namespace lockstep::optim
