#include "lockstep/launch/restart_budget.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono::minutes;

RestartBudget::Time at(int minute) { return RestartBudget::Time(minutes(minute)); }

TEST(RestartBudget, EndsAfterThatManyRestartsWithoutProgress) {
  RestartBudget budget(2);
  EXPECT_TRUE(budget.take());
  EXPECT_EQ(budget.left(), 1);
  EXPECT_TRUE(budget.take());
  EXPECT_FALSE(budget.take());
  EXPECT_FALSE(RestartBudget(0).take());
}

TEST(RestartBudget, IsRefilledByAnHourOfProgressAndNotBeyondItsMost) {
  RestartBudget budget(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.take());
  budget.reach(1, at(0));
  budget.reach(2, at(19));
  EXPECT_EQ(budget.left(), 0);
  budget.reach(3, at(21));
  EXPECT_EQ(budget.left(), 1);
  budget.reach(4, at(61));
  EXPECT_EQ(budget.left(), 3);
  budget.reach(5, at(1000));
  EXPECT_EQ(budget.left(), 3);
  EXPECT_EQ(budget.furthest(), 5);
}

TEST(RestartBudget, IsNotRefilledByStepsThatAreRepeated) {
  RestartBudget budget(1);
  budget.reach(10, at(0));
  EXPECT_TRUE(budget.take());
  for (int step = 5; step <= 10; ++step) budget.reach(step, at(60 * step));
  EXPECT_FALSE(budget.take());
  // The first new step ends no time of progress: the time before it was spent on repeating.
  budget.reach(11, at(700));
  EXPECT_FALSE(budget.take());
  budget.reach(12, at(761));
  EXPECT_TRUE(budget.take());
}

}  // namespace
}  // namespace lockstep
