// Two nodes of two ranks, whose launchers' messages and clock are the test's.
#include "lockstep/launch/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/launch/coordinated.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using coordinated::CoordinatorTest;
using coordinated::fresh;
using coordinated::Kind;
using coordinated::kNow;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CoordinatorTest, BeginsWithGenerationZero) {
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kBegin);
  EXPECT_EQ(message.generation, 0);
  EXPECT_EQ(message.job, "job a");
  EXPECT_FALSE(message.any_kept);
  EXPECT_FALSE(advance());
  EXPECT_EQ(coordinator_.due(), kNoDeadline);
}

TEST_F(CoordinatorTest, BeginsTheNextWhenNoNodeHasABusyRank) {
  begin();
  coordinator_.reach(7, kNow);
  coordinator_.hear(1, lost(), kNow);
  const auto action = advance();
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->kind, Kind::kRecover);
  EXPECT_EQ(action->tell->node, 1);
  EXPECT_THAT(action->say, ElementsAre("rank 2 was killed"));
  EXPECT_THAT(action->tell->more, HasSubstr("after step 7 was done: 1 restart is left"));
  coordinator_.hear(0, lost(), kNow);  // counted once
  EXPECT_FALSE(advance());
  ready(0, {0, 1});
  EXPECT_FALSE(advance());
  ready(1, {3});
  const JobMessage next = told();
  EXPECT_EQ(next.kind, Kind::kBegin);
  EXPECT_EQ(next.generation, 1);
  EXPECT_TRUE(next.any_kept);
  coordinator_.hear(1, lost(0), kNow);  // out of date
  EXPECT_FALSE(advance());
  coordinator_.hear(1, lost(1), kNow);
  EXPECT_THAT(told().more, HasSubstr("0 restarts are left"));
}

TEST_F(CoordinatorTest, EndsTheJobWhenNoRestartIsLeft) {
  coordinator_ = make({fresh("job a"), fresh()}, 0);
  begin();
  coordinator_.hear(1, lost(), kNow);
  const auto action = advance();
  ASSERT_TRUE(action && action->end);
  EXPECT_EQ(action->end->text, "rank 2 was killed");
  EXPECT_EQ(action->end->exit_code, 137);
}

TEST_F(CoordinatorTest, TakesAnErrorBeforeTheFirstStepForOneThatWouldComeAgain) {
  begin();
  JobMessage message = lost();
  message.ended_itself = true;
  coordinator_.hear(1, message, kNow);
  EXPECT_TRUE(advance()->end);
  coordinator_ = make({fresh("job a"), fresh()});
  begin();
  coordinator_.reach(1, kNow);
  coordinator_.hear(1, message, kNow);
  EXPECT_FALSE(advance()->end);
}

TEST_F(CoordinatorTest, PrefersTheReportOfTheRankThatOthersBlame) {
  begin();
  coordinator_.hear(0, lost(0, true), kNow);
  EXPECT_FALSE(advance());
  EXPECT_GT(coordinator_.due(), kNow);
  coordinator_.hear(1, lost(), kNow);
  EXPECT_EQ(told().text, "rank 2 was killed");
  coordinator_ = make({fresh("job a"), fresh()});
  begin();
  coordinator_.hear(0, lost(0, true), kNow);
  EXPECT_EQ(told(coordinator_.due()).text, "rank 2 is at fault");
}

TEST_F(CoordinatorTest, NamesRanksOfAnyNodeThatHang) {
  begin();
  waits(0, {3});
  waits(1, {3});
  EXPECT_FALSE(advance());  // rank 2 has not said whether it waits, too
  waits(2, {3});
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kRecover);
  EXPECT_THAT(message.ranks, ElementsAre(3));
  EXPECT_EQ(message.text, "rank 0 has lost others: no answer");
}

TEST_F(CoordinatorTest, EvictsASlowRankUnlessThatTakesTheLastRestart) {
  begin();
  coordinator_.reach(30, kNow);
  JobMessage slow{.kind = Kind::kSlow, .ranks = {2}};
  slow.text = "it took 4 times as long";
  coordinator_.hear(0, slow, kNow);
  const JobMessage evict = told();
  EXPECT_EQ(evict.kind, Kind::kEvict);
  EXPECT_THAT(evict.ranks, ElementsAre(2));
  EXPECT_EQ(evict.text, slow.text);
  coordinator_.hear(1, lost(), kNow);
  EXPECT_THAT(told().more, HasSubstr("1 restart is left"));
  coordinator_.hear(0, slow, kNow);  // while it recovers
  EXPECT_FALSE(advance());
  ready(0, {0, 1});
  ready(1, {3});
  begin(1);
  slow.generation = 1;
  coordinator_.hear(0, slow, kNow);
  EXPECT_FALSE(advance());
}

TEST_F(CoordinatorTest, GivesRanksTimeToNoticeALossThatNobodyKnowsTheCauseOf) {
  begin();
  coordinator_.reach(1, kNow - 20s);
  coordinator_.reach(2, kNow);
  waits(0, {});
  EXPECT_FALSE(advance(kNow + 64s));
  EXPECT_EQ(coordinator_.due(), kNow + 65s);  // the grace period and three steps
  const JobMessage message = told(kNow + 65s);
  EXPECT_THAT(message.ranks, IsEmpty());
  EXPECT_EQ(message.time, 0ms);
}

// Ranks that wait for one that has died before it met them notice nothing.
TEST_F(CoordinatorTest, HasRanksLeaveThatHaveNotMetYet) {
  begin();
  coordinator_.hear(1, lost(), kNow);
  EXPECT_FALSE(told().leave);  // none has states
  ready(0, {0, 1});
  ready(1, {3});
  begin(1);
  coordinator_.hear(1, lost(1), kNow);
  EXPECT_TRUE(told().leave);
  coordinator_ = make({fresh("job a"), fresh()});
  begin();
  coordinator_.hear(1, lost(), kNow);
  told();
  ready(0, {0, 1});
  ready(1, {3});
  begin(1);
  coordinator_.reach(7, kNow);
  coordinator_.hear(1, lost(1), kNow);
  EXPECT_FALSE(told().leave);
}

TEST_F(CoordinatorTest, WaitsForANodeThatWasLost) {
  begin();
  coordinator_.leave(1, kNow);
  const JobMessage recover = told();
  EXPECT_EQ(recover.kind, Kind::kRecover);
  EXPECT_TRUE(recover.leave);
  EXPECT_THAT(recover.text, HasSubstr("lost node 1 (ranks 2 to 3)"));
  EXPECT_FALSE(advance());  // its own ranks are busy
  ready(0, {0, 1});
  EXPECT_THAT(told().text, HasSubstr("wait 10m 00s for node 1"));
  EXPECT_FALSE(advance());
  coordinator_.join(1, fresh(), kNow + 5min);
  EXPECT_EQ(told().text, "node 1 is back");
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kBegin);
  EXPECT_EQ(message.generation, 1);
}

TEST_F(CoordinatorTest, TakesNoNodeThatWasStartedDifferently) {
  begin();
  coordinator_.leave(1, kNow);
  told();
  ready(0, {0, 1});
  told();
  NodeFacts other = fresh();
  other.ranks = 3;
  coordinator_.join(1, other, kNow);
  EXPECT_FALSE(advance());
}

TEST_F(CoordinatorTest, EndsTheJobWhenANodeDoesNotComeBack) {
  begin();
  coordinator_.leave(1, kNow);
  told();
  ready(0, {0, 1});
  told();
  EXPECT_EQ(coordinator_.due(), kNow + 10min);
  const auto action = advance(kNow + 10min);
  ASSERT_TRUE(action && action->end);
  EXPECT_THAT(action->end->text, HasSubstr("node 1 has not come back (--rejoin-timeout: 10m 00s)"));
}

TEST_F(CoordinatorTest, EndsTheJobWhenALauncherDoesNotAnswer) {
  begin();
  coordinator_.hear(0, lost(), kNow);
  told();
  ready(0, {1});
  const auto action = advance(coordinator_.due());
  ASSERT_TRUE(action && action->end);
  EXPECT_THAT(action->end->text, HasSubstr("node 1 does not answer"));
}

TEST_F(CoordinatorTest, RefusesALauncherOfAnotherJob) {
  begin();
  coordinator_.leave(1, kNow);
  told();
  NodeFacts other = fresh("job b");
  other.generation = 4;
  coordinator_.join(1, other, kNow);
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kRefused);
  EXPECT_EQ(message.node, 1);
}

TEST_F(CoordinatorTest, OfANodeZeroThatIsBackContinuesWithWhatOthersHaveKept) {
  NodeFacts one = fresh("job a");
  one.generation = 4;
  one.kept = {2, 3};
  coordinator_ = make({fresh("job b"), one});
  EXPECT_THAT(told().text, HasSubstr("node 0 is back"));
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kBegin);
  EXPECT_EQ(message.generation, 5);
  EXPECT_EQ(message.job, "job b");
  EXPECT_TRUE(message.any_kept);
}

TEST_F(CoordinatorTest, OfANodeZeroThatIsBackEndsWhereOthersHaveKeptDifferentJobs) {
  NodeFacts one = fresh("job a");
  NodeFacts two = fresh("job c");
  one.generation = two.generation = 4;
  coordinator_ = make({fresh("job b"), one, two});
  const auto action = advance();
  ASSERT_TRUE(action && action->end);
  EXPECT_THAT(action->end->text, HasSubstr("another job"));
}

TEST_F(CoordinatorTest, StopsAsAskedWithOneMoreGenerationIfRanksHaveKeptStates) {
  begin();
  coordinator_.hear(1, lost(), kNow);
  told();
  ready(0, {0, 1});
  ready(1, {3});
  const auto saves = advance(kNow, true);
  ASSERT_TRUE(saves && saves->tell);
  EXPECT_EQ(saves->tell->kind, Kind::kBegin);
  coordinator_.hear(1, lost(1), kNow);
  advance(kNow, true);
  ready(0, {}, 1);
  ready(1, {}, 1);
  const auto in_vain = advance(kNow, true);
  ASSERT_TRUE(in_vain);
  EXPECT_TRUE(in_vain->stop);
  EXPECT_THAT(in_vain->say, ElementsAre(HasSubstr("are not saved")));
}

}  // namespace
}  // namespace lockstep
