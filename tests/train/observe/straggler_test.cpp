#include "lockstep/train/observe/straggler.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/train/observe/worker_costs.h"

namespace lockstep::train {
namespace {

using Seconds = std::vector<double>;

void add_steps(StragglerWatch& watch, int steps, const Seconds& seconds) {
  std::vector<parallel::StepCost> costs;
  for (const double one : seconds) costs.push_back({.compute_seconds = one});
  for (int i = 0; i < steps; ++i) watch.add(costs);
}

TEST(Straggler, IsNamedOnceItWasSlowForAWhile) {
  StragglerWatch watch;
  const Seconds slow = {1, 1, 1.1, 2.9};
  add_steps(watch, 10, slow);
  EXPECT_FALSE(watch.straggler());
  add_steps(watch, 1, slow);
  ASSERT_TRUE(watch.straggler());
  EXPECT_EQ(watch.straggler()->rank, 3);
  EXPECT_DOUBLE_EQ(watch.straggler()->times, 2.9);
}

TEST(Straggler, IsForgottenWhenItHasCaughtUp) {
  StragglerWatch watch;
  add_steps(watch, 100, {3, 1, 1});
  add_steps(watch, 9, {1, 1, 1});
  EXPECT_TRUE(watch.straggler());
  add_steps(watch, 1, {1, 1, 1});
  EXPECT_FALSE(watch.straggler());
}

TEST(Straggler, IsNobodyWhereAllAreAsSlow) {
  for (const Seconds& seconds :
       {Seconds{}, Seconds{1}, Seconds{1, 1}, Seconds{1, 1.19}, Seconds{0, 0, 0}, Seconds{0, 5}}) {
    StragglerWatch watch;
    add_steps(watch, 40, seconds);
    EXPECT_FALSE(watch.straggler()) << seconds.size();
  }
}

TEST(Straggler, IsNobodyWhereRanksTakeTurns) {
  StragglerWatch watch;
  for (int i = 0; i < 40; ++i) add_steps(watch, 1, i % 2 == 0 ? Seconds{2, 1} : Seconds{1, 2});
  EXPECT_FALSE(watch.straggler());
}

TEST(Straggler, IsOneOfTwo) {
  StragglerWatch watch;
  add_steps(watch, 20, {1, 1.3});
  ASSERT_TRUE(watch.straggler());
  EXPECT_EQ(watch.straggler()->rank, 1);
  EXPECT_DOUBLE_EQ(watch.straggler()->times, 1.3);
}

TEST(Straggler, IsNotWhoHasMoreToDo) {
  const Seconds seconds = {2, 1, 1};
  StragglerWatch fair({2, 1, 1});
  add_steps(fair, 20, seconds);
  EXPECT_FALSE(fair.straggler());
  StragglerWatch unfair({1, 1, 0});  // the last has nothing to do
  add_steps(unfair, 20, seconds);
  ASSERT_TRUE(unfair.straggler());
  EXPECT_EQ(unfair.straggler()->rank, 0);
  EXPECT_DOUBLE_EQ(unfair.straggler()->times, 2);
}

TEST(WorkerCosts, AreMeansTheLongestWaitAndAllBytes) {
  const std::vector<parallel::StepCost> costs = {
      {.compute_seconds = 1,
       .communication_seconds = 0.5,
       .exposed_seconds = 0.2,
       .bytes_sent = 10},
      {.compute_seconds = 4, .communication_seconds = 1, .exposed_seconds = 0, .bytes_sent = 20},
      {.compute_seconds = 1,
       .communication_seconds = 1.5,
       .exposed_seconds = 0.7,
       .bytes_sent = 30,
       .staleness = 3}};
  const auto all = costs_of_workers(costs, 3);
  ASSERT_TRUE(all);
  EXPECT_DOUBLE_EQ(all->compute_seconds, 2);
  EXPECT_DOUBLE_EQ(all->communication_seconds, 1);
  EXPECT_DOUBLE_EQ(all->exposed_seconds, 0.3);
  EXPECT_DOUBLE_EQ(all->longest_exposed_seconds, 0.7);
  EXPECT_EQ(all->bytes_sent, 60U);
  EXPECT_DOUBLE_EQ(all->staleness, 1);
  EXPECT_DOUBLE_EQ(all->most_stale, 3);
  EXPECT_EQ(all->slowest_rank, 1);
  EXPECT_DOUBLE_EQ(all->slowest_seconds, 4);
  EXPECT_FALSE(costs_of_workers(std::span(costs).first(1), 1));
  EXPECT_FALSE(costs_of_workers({}, 3));
}

// One rank waits for all of its communication, the other has none: a maximum of one beside a mean
// of the other would show more waiting than communication.
TEST(WorkerCosts, AreExposedForNoLongerThanCommunicationTook) {
  const std::vector<parallel::StepCost> costs = {
      {.compute_seconds = 1, .communication_seconds = 32, .exposed_seconds = 32},
      {.compute_seconds = 1, .communication_seconds = 14, .exposed_seconds = 0}};
  const auto all = costs_of_workers(costs, 2);
  ASSERT_TRUE(all);
  EXPECT_DOUBLE_EQ(all->communication_seconds, 23);
  EXPECT_LE(all->exposed_seconds, all->communication_seconds);
  EXPECT_DOUBLE_EQ(all->longest_exposed_seconds, 32);
}

TEST(WorkerCosts, OfWhoKnowsNobodyElseAreItsOwn) {
  const parallel::StepCost unknown{.compute_seconds = 9, .staleness = 9, .known = false};
  const std::vector<parallel::StepCost> costs = {
      unknown, {.compute_seconds = 2, .exposed_seconds = 1, .staleness = 1.5}, unknown};
  const auto known = costs_of_workers(costs, 3);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->compute_seconds, 2);
  EXPECT_EQ(known->exposed_seconds, 1);
  EXPECT_EQ(known->staleness, 1.5);
  EXPECT_EQ(known->most_stale, 1.5);
  EXPECT_EQ(known->slowest_rank, -1);
  EXPECT_FALSE(costs_of_workers(std::span(costs).first(1), 3));
}

TEST(WorkerCosts, LeaveOutWhoIsGone) {
  const std::vector<parallel::StepCost> costs = {
      {.compute_seconds = 9, .known = false}, {.compute_seconds = 1}, {.compute_seconds = 3}};
  const auto known = costs_of_workers(costs, 3);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->compute_seconds, 2);
  EXPECT_EQ(known->slowest_rank, 2);
  EXPECT_EQ(known->slowest_seconds, 3);
}

}  // namespace
}  // namespace lockstep::train
