// The coordinator of an elastic job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

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

// Four ranks on one node, of which two must be left.
class ElasticCoordinator : public CoordinatorTest {
 protected:
  void make_job(int restarts, int spares = 0, int least = 2) {
    NodeFacts facts = fresh("job a");
    facts.ranks = 4;
    generation_ = 0;
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
  // Two nodes of two ranks.
  void make_nodes(int least_nodes, int restarts, int spares = 0, int least = 2) {
    facts_ = fresh("job a");
    facts_.least = least;
    facts_.least_nodes = least_nodes;
    facts_.restarts = restarts;
    facts_.spares = spares;
    generation_ = 0;
    coordinator_ = Coordinator({.nodes = 2,
                                .ranks_per_node = 2,
                                .restarts = restarts,
                                .has_links = true,
                                .least = least,
                                .least_nodes = least_nodes,
                                .spares = spares,
                                .grace = 5s,
                                .rejoin_timeout = 10min},
                               std::vector{facts_, facts_});
    begin();
    reach(7);
  }
  // Node 1 is lost, and the ranks of node 0 wait for it.
  void lose_node(int generation = 0) {
    coordinator_.leave(1, kNow);
    EXPECT_TRUE(told().leave);
    ready(0, {0, 1}, generation);
    EXPECT_THAT(told().text, HasSubstr("wait 10m 00s for node 1"));
    EXPECT_FALSE(advance());
  }
  void reach(std::int64_t step, Deadline now = kNow) { coordinator_.reach(step, now); }
  void pool(int warm, int starting, int node = 0) {
    JobMessage message{.kind = Kind::kPool, .generation = generation_};
    message.warm = warm;
    message.starting = starting;
    coordinator_.hear(node, message, kNow);
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
    return begins(asked_to_stop);
  }
  // And the pool that follows is of the generation that begins.
  std::optional<Coordinator::Action> begins(bool asked_to_stop = false) {
    auto action = advance(kNow, asked_to_stop);
    if (action && action->tell) generation_ = action->tell->generation;
    return action;
  }
  // How many spares it starts, of all nodes.
  int started() {
    const JobMessage message = told();
    EXPECT_EQ(message.kind, Kind::kStart);
    return message.count;
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

  int generation_ = 0;  // as begins() has seen it
  NodeFacts facts_;
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
  EXPECT_EQ(started(), 1);
  pool(0, 1);
  EXPECT_FALSE(advance());
  pool(1, 0);
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kRegroup);
  EXPECT_EQ(message.generation, 2);
  regroup(2, 3);
  const auto action = begins();
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 4);
  EXPECT_THAT(action->say, ElementsAre("the job continues with 4 ranks instead of 3"));
}

TEST_F(ElasticCoordinator, GivesTheJobTheRanksThatSomebodyAsksFor) {
  make_job(0);
  resize(2);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(0, 4);
  EXPECT_EQ(begins()->tell->count, 2);
  reach(8);
  EXPECT_FALSE(advance());
  resize(4);
  EXPECT_EQ(started(), 2);
  pool(1, 1);
  EXPECT_FALSE(advance());  // one joins with the other
  pool(2, 0);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(1, 2);
  EXPECT_EQ(begins()->tell->count, 4);
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
  EXPECT_EQ(begins()->tell->count, 3);
}

TEST_F(ElasticCoordinator, PutsASpareInTheRanksPlaceAndStartsAnother) {
  make_job(1, 1, 4);
  EXPECT_EQ(started(), 1);  // takes no restart
  pool(1, 0);
  EXPECT_FALSE(advance());
  auto action = after_loss(0, {0, 1, 3}, 1);
  ASSERT_TRUE(action && action->tell);
  EXPECT_EQ(action->tell->count, 4);
  EXPECT_THAT(action->say, IsEmpty());
  pool(0, 0);
  reach(8);
  EXPECT_EQ(started(), 1);  // a restart
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
  EXPECT_EQ(started(), 1);
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

TEST_F(ElasticCoordinator, GoesOnWithoutANodeAndGrowsWhenItIsBack) {
  make_nodes(1, 0);
  lose_node();
  const Deadline later = kNow + 10min;
  EXPECT_THAT(told(later).text, HasSubstr("node 1 has not come back (--rejoin-timeout: 10m 00s)"));
  const auto without = begins();
  ASSERT_TRUE(without && without->tell);
  EXPECT_THAT(without->say, ElementsAre("the job continues with 2 ranks instead of 4"));
  EXPECT_THAT(without->tell->counts, ElementsAre(2, -1));
  EXPECT_TRUE(without->tell->any_kept);
  EXPECT_FALSE(advance());
  reach(8);
  coordinator_.join(1, facts_, kNow);
  const JobMessage rest = told();
  EXPECT_EQ(rest.kind, Kind::kRest);
  EXPECT_EQ(rest.node, 1);
  EXPECT_EQ(rest.generation, 1);
  EXPECT_THAT(rest.counts, ElementsAre(2, 0));
  const JobMessage start = told();  // without a restart of the budget
  EXPECT_EQ(start.kind, Kind::kStart);
  EXPECT_THAT(start.counts, ElementsAre(0, 2));
  pool(1, 1, 1);
  EXPECT_FALSE(advance());
  pool(2, 0, 1);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(1, 2);
  EXPECT_FALSE(advance());
  ready(1, {}, 1);
  const auto whole = begins();
  ASSERT_TRUE(whole && whole->tell);
  EXPECT_THAT(whole->tell->counts, ElementsAre(2, 2));
  EXPECT_THAT(whole->say, ElementsAre("the job continues with 4 ranks instead of 2"));
}

// The ranks that are left may take longer to stop than others wait for the node.
TEST_F(ElasticCoordinator, WaitsForItsOwnRanksBeforeItLeavesANodeOut) {
  make_nodes(1, 0);
  coordinator_.leave(1, kNow);
  EXPECT_TRUE(told().leave);
  const Deadline later = kNow + 10min + 1s;
  EXPECT_FALSE(advance(later));
  EXPECT_GT(coordinator_.due(), later);
  ready(0, {0, 1});
  EXPECT_THAT(told(later).text, HasSubstr("node 1 has not come back"));
  const auto action = begins();
  ASSERT_TRUE(action && action->tell);
  EXPECT_THAT(action->tell->counts, ElementsAre(2, -1));
}

TEST_F(ElasticCoordinator, TurnsANodeAwayThatComesWhenTheJobEnds) {
  make_nodes(1, 0);
  lose_node();
  told(kNow + 10min);
  EXPECT_TRUE(begins()->tell);
  coordinator_.finish(0);
  coordinator_.join(1, facts_, kNow);
  const JobMessage refusal = told();
  EXPECT_EQ(refusal.kind, Kind::kRefused);
  EXPECT_THAT(refusal.text, HasSubstr("the job is ending"));
}

// Whatever number it had when it left.
TEST_F(ElasticCoordinator, GivesANodeThatComesBackInARecoveryAllOfItsRanks) {
  make_nodes(1, 1, 0, 1);
  resize(3);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(0, 4);
  ready(1, {2, 3});
  EXPECT_THAT(begins()->tell->counts, ElementsAre(2, 1));
  lose_node(1);
  told(kNow + 10min);
  EXPECT_TRUE(begins()->tell);
  coordinator_.hear(0, lost(2), kNow);
  EXPECT_EQ(told().kind, Kind::kRecover);
  coordinator_.join(1, facts_, kNow);
  EXPECT_EQ(told().text, "node 1 is back");
  ready(0, {0, 1}, 2);
  EXPECT_THAT(begins()->tell->counts, ElementsAre(2, 2));
}

TEST_F(ElasticCoordinator, TakesNoRestartForANodeThatIsBackInTime) {
  make_nodes(1, 2);
  lose_node();
  coordinator_.join(1, facts_, kNow + 1min);
  EXPECT_EQ(told().text, "node 1 is back");
  const auto action = begins();
  ASSERT_TRUE(action && action->tell);
  EXPECT_THAT(action->tell->counts, ElementsAre(2, 2));
  EXPECT_THAT(action->say, IsEmpty());
}

// One of its two ranks has died there, and no restart is left.
TEST_F(ElasticCoordinator, NumbersRanksOfNodesThatHaveDifferentlyMany) {
  make_nodes(0, 0, 0, 1);
  coordinator_.hear(0, lost(), kNow);
  EXPECT_EQ(told().kind, Kind::kRecover);
  JobMessage message{.kind = Kind::kReady, .generation = 0, .ranks = {1}};
  message.count = 1;
  coordinator_.hear(0, message, kNow);
  ready(1, {2, 3});
  EXPECT_THAT(begins()->tell->counts, ElementsAre(1, 2));
  coordinator_.leave(1, kNow);
  EXPECT_THAT(told().text, HasSubstr("lost node 1 (ranks 1 to 2)"));
}

TEST_F(ElasticCoordinator, SavesAndEndsWithFewerNodesThanItNeeds) {
  make_nodes(0, 2, 1);
  EXPECT_EQ(started(), 2);
  lose_node();
  told(kNow + 10min);
  const auto action = begins();
  ASSERT_TRUE(action && action->tell && action->end_after);
  EXPECT_THAT(action->say,
              ElementsAre("2 ranks are left, and the job needs 4 (--nodes 2 --ranks 2): it saves "
                          "and ends",
                          "the job continues with 2 ranks instead of 4"));
}

TEST_F(ElasticCoordinator, SavesWithoutAMissingNodeWhenItIsAskedToStop) {
  make_nodes(1, 0);
  lose_node();
  const auto notice = advance(kNow, true);
  ASSERT_TRUE(notice && notice->tell);
  EXPECT_THAT(notice->tell->text, HasSubstr("node 1 is missing: the others save without it"));
  const auto action = begins(true);
  ASSERT_TRUE(action && action->tell);
  EXPECT_THAT(action->tell->counts, ElementsAre(2, -1));
  EXPECT_FALSE(action->stop);
}

TEST_F(ElasticCoordinator, NeedsARankOnNodeZero) {
  make_nodes(1, 0, 0, 1);
  coordinator_.hear(0, lost(), kNow);
  told();
  JobMessage message{.kind = Kind::kReady, .generation = 0};
  message.count = 2;
  coordinator_.hear(0, message, kNow);
  ready(1, {2, 3});
  const auto action = begins();
  ASSERT_TRUE(action && action->end);
  EXPECT_THAT(action->say.back(), HasSubstr("no rank is left on node 0"));
}

TEST_F(ElasticCoordinator, SpreadsTheRanksThatSomebodyAsksForOverItsNodes) {
  make_nodes(1, 0, 0, 1);
  EXPECT_THAT(coordinator_.refusal_of(1), HasSubstr("--nodes 1:2 --ranks 1:2, on 2 of these"));
  EXPECT_THAT(coordinator_.refusal_of(5), HasSubstr("cannot go on with 5"));
  EXPECT_EQ(coordinator_.refusal_of(3), "");
  resize(3);
  EXPECT_EQ(told().kind, Kind::kRegroup);
  regroup(0, 4);
  ready(1, {2, 3});
  EXPECT_THAT(begins()->tell->counts, ElementsAre(2, 1));
}

// A job may begin without nodes that have not joined.
TEST_F(ElasticCoordinator, BeginsWithTheNodesThatAreThere) {
  make_nodes(1, 0);
  NodeFacts nobody;
  nobody.ranks = 0;
  coordinator_ = Coordinator({.nodes = 2,
                              .ranks_per_node = 2,
                              .has_links = true,
                              .least = 2,
                              .least_nodes = 1,
                              .grace = 5s,
                              .rejoin_timeout = 10min},
                             std::vector{facts_, nobody});
  const JobMessage message = told();
  EXPECT_EQ(message.kind, Kind::kBegin);
  EXPECT_EQ(message.count, 2);
  EXPECT_THAT(message.counts, ElementsAre(2, -1));
  EXPECT_FALSE(advance());
}

}  // namespace
}  // namespace lockstep
