// Two nodes of two ranks, whose launchers' messages and clock are the test's.
#include "lockstep/launch/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = JobMessage::Kind;

const Deadline kNow = Deadline(1h);

NodeFacts fresh(const std::string& job = "") { return {.ranks = 2, .restarts = 2, .job = job}; }

class CoordinatorTest : public ::testing::Test {
 protected:
  static Coordinator make(const std::vector<NodeFacts>& facts, int restarts = 2) {
    return Coordinator({.nodes = static_cast<int>(facts.size()),
                        .ranks_per_node = 2,
                        .restarts = restarts,
                        .has_links = true,
                        .grace = 5s,
                        .rejoin_timeout = 10min},
                       facts);
  }
  CoordinatorTest() : coordinator_(make({fresh("job a"), fresh()})) {}

  std::optional<Coordinator::Action> advance(Deadline now = kNow, bool asked_to_stop = false) {
    return coordinator_.advance(now, asked_to_stop);
  }
  // What it tells all nodes now; nothing else may be due.
  JobMessage told(Deadline now = kNow) {
    const auto action = advance(now);
    if (!action || !action->tell || action->end || action->stop) {
      ADD_FAILURE() << "it tells nothing";
      return {};
    }
    return *action->tell;
  }
  void begin(int generation = 0) {
    const JobMessage message = told();
    EXPECT_EQ(message.kind, Kind::kBegin);
    EXPECT_EQ(message.generation, generation);
    EXPECT_FALSE(advance());
  }
  JobMessage lost(int generation = 0, bool blames = false) const {
    JobMessage message{.kind = Kind::kLost, .generation = generation, .exit_code = 137};
    message.blames = blames;
    message.text = blames ? "rank 2 is at fault" : "rank 2 was killed";
    return message;
  }
  void ready(int node, std::vector<int> kept, int generation = 0) {
    coordinator_.hear(
        node, {.kind = Kind::kReady, .generation = generation, .ranks = std::move(kept)}, kNow);
  }
  void waits(int rank, std::vector<int> hung) {
    JobMessage message{.kind = Kind::kWaits, .generation = 0, .rank = rank};
    message.ranks = std::move(hung);
    message.text = "no answer";
    coordinator_.hear(rank / 2, message, kNow);
  }

  Coordinator coordinator_;
};

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

// Four ranks on one node, of which two must be left.
class ElasticCoordinator : public CoordinatorTest {
 protected:
  void make_job(int restarts, int spares = 0, int least = 2) {
    NodeFacts facts = fresh("job a");
    facts.ranks = 4;
    coordinator_ = Coordinator({.nodes = 1,
                                .ranks_per_node = 4,
                                .restarts = restarts,
                                .has_links = true,
                                .least = least,
                                .spares = spares,
                                .grace = 5s,
                                .rejoin_timeout = 10min},
                               std::vector{facts});
    const JobMessage message = told();
    EXPECT_EQ(message.kind, Kind::kBegin);
    EXPECT_EQ(message.count, 4);
    EXPECT_FALSE(advance());
    reach(7);
  }
  void reach(std::int64_t step, Deadline now = kNow) { coordinator_.reach(step, now); }
  void pool(int warm, int starting) {
    JobMessage message{.kind = Kind::kPool};
    message.warm = warm;
    message.starting = starting;
    coordinator_.hear(0, message, kNow);
  }
  // A rank is killed; those that are left wait. What begins then.
  std::optional<Coordinator::Action> after_loss(int generation, const std::vector<int>& kept,
                                                int failed, bool asked_to_stop = false) {
    coordinator_.hear(0, lost(generation), kNow);
    EXPECT_EQ(told().kind, Kind::kRecover);
    EXPECT_FALSE(advance());
    JobMessage message{.kind = Kind::kReady, .generation = generation, .ranks = kept};
    message.count = failed;
    coordinator_.hear(0, message, kNow);
    return advance(kNow, asked_to_stop);
  }
  void regroup(int generation, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(advance());
      JobMessage message{.kind = Kind::kWaits, .generation = generation, .rank = rank};
      message.regrouped = true;
      coordinator_.hear(0, message, kNow);
    }
    const JobMessage recover = told();
    EXPECT_EQ(recover.kind, Kind::kRecover);
    std::vector<int> kept(static_cast<std::size_t>(ranks));
    std::iota(kept.begin(), kept.end(), 0);
    ready(0, kept, generation);
  }
  void resize(int ranks) {
    JobMessage message{.kind = Kind::kResize};
    message.count = ranks;
    coordinator_.hear(0, message, kNow);
  }
};

TEST_F(ElasticCoordinator, TakesARestartAndThenGoesOnWithFewerRanks) {
  make_job(1);
  auto action = after_loss(0, {0, 1, 3}, 1);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 4);
  EXPECT_THAT(action->say, ElementsAre(HasSubstr("0 restarts are left")));
  reach(8);
  action = after_loss(1, {0, 2, 3}, 1);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 3);
  EXPECT_THAT(action->say, ElementsAre(HasSubstr("no restart is left"),
                                       HasSubstr("continues with 3 ranks instead of 4")));
  EXPECT_FALSE(advance());
}

TEST_F(ElasticCoordinator, GrowsWhenARestartIsLeftAgain) {
  make_job(1);
  after_loss(0, {0, 1, 3}, 1);
  after_loss(1, {0, 1, 2}, 1);
  reach(8);
  reach(9, kNow + 59min);
  EXPECT_FALSE(advance());
  reach(10, kNow + 61min);
  auto action = advance();
  ASSERT_TRUE(action);
  EXPECT_EQ(action->start, 1);
  pool(0, 1);
  EXPECT_FALSE(advance());
  pool(1, 0);
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kRegroup);
  EXPECT_EQ(message.generation, 2);
  regroup(2, 3);
  action = advance();
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 4);
  EXPECT_THAT(action->say, ElementsAre("the job continues with 4 ranks instead of 3"));
}

TEST_F(ElasticCoordinator, GivesTheJobTheRanksThatSomebodyAsksFor) {
  make_job(0);
  resize(2);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(0, 4);
  EXPECT_EQ(advance()->tell->count, 2);
  reach(8);
  EXPECT_FALSE(advance());
  resize(4);
  const auto action = advance();
  ASSERT_TRUE(action);
  EXPECT_EQ(action->start, 2);
  pool(1, 1);
  EXPECT_FALSE(advance());  // one joins with the other
  pool(2, 0);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(1, 2);
  EXPECT_EQ(advance()->tell->count, 4);
}

// The ranks could not save what the next generation needs.
TEST_F(ElasticCoordinator, KeepsItsRanksUntilSomebodyAsksAgain) {
  make_job(0);
  resize(2);
  const JobMessage first = told();
  EXPECT_EQ(first.kind, Kind::kRegroup);
  EXPECT_EQ(first.count, 1);
  JobMessage stays{.kind = Kind::kStays, .generation = 0, .count = first.count};
  coordinator_.hear(0, stays, kNow);
  EXPECT_THAT(told().text, HasSubstr("the job keeps its 4 ranks"));
  EXPECT_FALSE(advance());
  resize(3);
  const JobMessage second = told();
  EXPECT_EQ(second.kind, Kind::kRegroup);
  EXPECT_EQ(second.count, 2);
  coordinator_.hear(0, stays, kNow);  // the answer to the first, again
  regroup(0, 4);
  EXPECT_EQ(advance()->tell->count, 3);
}

TEST_F(ElasticCoordinator, PutsASpareInTheRanksPlaceAndStartsAnother) {
  make_job(1, 1, 4);
  auto action = advance();
  ASSERT_TRUE(action);
  EXPECT_EQ(action->start, 1);  // takes no restart
  pool(1, 0);
  EXPECT_FALSE(advance());
  action = after_loss(0, {0, 1, 3}, 1);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 4);
  EXPECT_THAT(action->say, IsEmpty());
  pool(0, 0);
  reach(8);
  action = advance();
  ASSERT_TRUE(action);
  EXPECT_EQ(action->start, 1);  // a restart
  pool(1, 0);
  EXPECT_EQ(after_loss(1, {0, 1, 3}, 1)->tell->count, 4);
  pool(0, 0);
  reach(9);
  EXPECT_FALSE(advance());
  action = after_loss(2, {0, 1, 3}, 1);
  ASSERT_TRUE(action && action->end_after);
  EXPECT_EQ(action->end_after->exit_code, 137);
  EXPECT_EQ(action->tell->count, 3);  // they save
}

// The pool has not reported yet that its spare is a rank now.
TEST_F(ElasticCoordinator, DoesNotRegroupForASpareThatTakesPart) {
  make_job(0, 1);
  EXPECT_EQ(advance()->start, 1);
  pool(1, 0);
  const auto action = after_loss(0, {0, 1}, 2);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 3);
  EXPECT_FALSE(advance());
  pool(0, 0);
  EXPECT_FALSE(advance());
}

TEST_F(ElasticCoordinator, EndsTheJobWithFewerThanItNeeds) {
  make_job(0, 0, 3);
  auto action = after_loss(0, {1, 2}, 2);
  ASSERT_TRUE(action && action->end_after && action->tell);
  EXPECT_EQ(action->tell->count, 2);
  EXPECT_THAT(action->say,
              ElementsAre(HasSubstr("no restart is left"),
                          "2 ranks are left, and the job needs 3 (--ranks 3:4): it saves and ends",
                          HasSubstr("2 ranks instead of 4")));
  make_job(0, 0, 3);
  action = after_loss(0, {}, 2);  // nobody has states
  ASSERT_TRUE(action && action->end);
  EXPECT_FALSE(action->tell);
  EXPECT_EQ(action->end->text, "rank 2 was killed");
}

// Nobody knows which of them is at fault, so it may happen again and again.
TEST_F(ElasticCoordinator, TakesARestartWhereNoRankHasFailed) {
  make_job(1);
  auto action = after_loss(0, {0, 1, 2, 3}, 0);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 4);
  EXPECT_THAT(action->say, ElementsAre(HasSubstr("0 restarts are left")));
  action = after_loss(1, {0, 1, 2, 3}, 0);
  ASSERT_TRUE(action && action->end);
}

TEST_F(ElasticCoordinator, StopsWithTheRanksThatAreLeft) {
  make_job(3, 0, 4);
  const auto action = after_loss(0, {0, 1, 3}, 1, true);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 3);
  EXPECT_FALSE(action->end_after);
}

TEST_F(ElasticCoordinator, EvictsNobodyWhileItRegroups) {
  make_job(2);
  resize(2);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  JobMessage slow{.kind = Kind::kSlow, .ranks = {2}};
  coordinator_.hear(0, slow, kNow);
  EXPECT_FALSE(advance());
}

}  // namespace
}  // namespace lockstep
