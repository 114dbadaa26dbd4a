// `lockstep train --nodes MIN:MAX`: a node is lost and comes back, and the losses are those of a
// job with always the same nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "tests/cli/train_nodes.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
namespace fs = std::filesystem;

class TrainElasticNodes : public testing::TrainNodes {
 protected:
  TrainElasticNodes() { nodes_ = "1:2"; }

  // Long enough for everything that a test does meanwhile; it ends by end().
  std::string endless(const std::string& dir, const std::string& more) const {
    return settings(dir,
                    "train.steps=1000000 checkpoint.every=0 optimizer.learning_rate=1e-4 " + more);
  }
  void end(const std::string& dir) {
    ::kill(launcher(0), SIGTERM);
    for (const int node : {0, 1}) EXPECT_EQ(wait_node(node), 75) << logs();
    expect_nobody_left(dir);
  }
  // The undisturbed job on one node, for as many steps as `dir` has, and more.
  void train_whole(const std::string& more, const std::string& dir) {
    const std::int64_t steps = last_step(dir);
    const pid_t whole = start(endless("whole", more + " --ranks 4"));
    EXPECT_TRUE(eventually([&] { return last_step("whole") >= steps; }, std::chrono::minutes(2)));
    ::kill(whole, SIGTERM);
    wait_for(whole);
    expect_nobody_left("whole");
  }

  void lose_a_node_and_grow(const std::string& dir, const std::string& more,
                            const std::string& says, double tolerance = 1e-5) {
    const std::string arguments =
        endless(dir, more + " --max-restarts 0 --rejoin-timeout 5s --grace 10min");
    start_nodes(arguments);
    await_step(dir, 30);
    kill_node(1);
    await_log(0, "the job continues with 2 ranks instead of 4");
    await_progress(dir);
    start_node(1, arguments);
    await_log(0, "the job continues with 4 ranks instead of 2");
    await_progress(dir);
    end(dir);
    EXPECT_THAT(log(0), AllOf(HasSubstr("lost node 1 (ranks 2 to 3)"),
                              HasSubstr("node 1 has not come back"), HasSubstr(says),
                              HasSubstr("node 1 is back: its ranks take part when they are ready"),
                              HasSubstr("stopping 2 ranks after a step, to continue with 4")));
    EXPECT_THAT(log(1), AllOf(HasSubstr("takes part as rank 2"), HasSubstr("takes part as rank 3"),
                              Not(HasSubstr("in generation"))));
    EXPECT_THAT(ranks_of_steps(dir), ElementsAre(4, 2, 4));
    train_whole(more, dir);
    expect_losses_of_whole(dir, tolerance);
    fs::remove_all(folder / dir);
    fs::remove_all(folder / "whole");
  }
};

TEST_F(TrainElasticNodes, GoesOnWithoutANodeAndGrowsWhenItIsBack) {
  lose_a_node_and_grow("ddp", "", "with the states of rank 0");
}

TEST_F(TrainElasticNodes, OfATreeGivesTheBitsOfAnUndisturbedRun) {
  lose_a_node_and_grow("tree", "train.micro_batch_size=1 parallel.reduction=tree",
                       "with the states of rank 0", 0);
}

// Emulated nodes have the same borders, so mirrors lie on the other one.
TEST_F(TrainElasticNodes, OfMirroredZeroReshardsWhatTheOtherNodesHave) {
  for (const std::string stage : {"1", "2", "3"}) {
    lose_a_node_and_grow("zero" + stage,
                         "survive.mirror=true comm.emulated_nodes=2 parallel.zero=" + stage,
                         "resharded among 2 ranks, that of rank 2 from its mirror on rank");
  }
}

// Nothing is kept of the shards of the lost node; the ranks that regroup save first.
TEST_F(TrainElasticNodes, OfZeroContinuesFromACheckpoint) {
  lose_a_node_and_grow("zero", "parallel.zero=2 checkpoint.every=10",
                       "starting all 2 ranks again, from the newest checkpoint");
}

TEST_F(TrainElasticNodes, BeginsWithTheNodesThatAreThere) {
  const std::string arguments = endless("late", "--rejoin-timeout 100ms");
  start_node(0, arguments);
  await_step("late", 20);
  start_node(1, arguments);
  await_log(0, "the job continues with 4 ranks instead of 2");
  await_progress("late");
  end("late");
  EXPECT_THAT(ranks_of_steps("late"), ElementsAre(2, 4));
  train_whole("", "late");
  expect_losses_of_whole("late", 1e-5);
}

// In time, so nothing is left out, and no restart is taken.
TEST_F(TrainElasticNodes, WaitsForANodeFirst) {
  const std::string arguments = endless("back", "--max-restarts 0 --rejoin-timeout 10min");
  start_nodes(arguments);
  await_step("back", 30);
  kill_node(1);
  await_log(0, "the other nodes wait 10m 00s for node 1");
  start_node(1, arguments);
  await_log(0, "node 1 is back");
  await_progress("back");
  end("back");
  EXPECT_THAT(ranks_of_steps("back"), ElementsAre(4));
  train_whole("", "back");
  expect_losses_of_whole("back", 0);
}

// Without that, as a job with a fixed number of nodes cannot save then.
TEST_F(TrainElasticNodes, SavesWithoutTheMissingNodeWhenItIsAskedToStop) {
  start_nodes(endless("stop", "--rejoin-timeout 10min"));
  await_step("stop", 20);
  kill_node(1);
  await_log(0, "the other nodes wait 10m 00s for node 1");
  ::kill(launcher(0), SIGTERM);
  EXPECT_EQ(wait_node(0), 75) << logs();
  EXPECT_THAT(log(0), HasSubstr("saved after step"));
  EXPECT_FALSE(fs::is_empty(folder / "stop" / "checkpoints")) << logs();
  expect_nobody_left("stop");
}

// Ranks of one node may be fewer than those of another.
TEST_F(TrainElasticNodes, GoesOnWithFewerRanksOfANode) {
  nodes_ = "2";
  ranks_ = "1:2";
  start_nodes(endless("fewer", "--max-restarts 0"));
  await_step("fewer", 20);
  kill_rank("fewer", 1);
  await_log(0, "the job continues with 3 ranks instead of 4");
  await_progress("fewer");
  const Outcome asked = run_lockstep("resize " + (folder / "fewer").string() + " 4");
  EXPECT_EQ(asked.exit_code, 0) << asked.text;
  await_log(0, "the job continues with 4 ranks instead of 3");
  await_progress("fewer");
  end("fewer");
  EXPECT_THAT(log(1), HasSubstr("rank 2 is rank 1, rank 3 is rank 2 now"));
  EXPECT_THAT(ranks_of_steps("fewer"), ElementsAre(4, 3, 4));
  train_whole("", "fewer");
  expect_losses_of_whole("fewer", 1e-5);
}

TEST_F(TrainElasticNodes, HasSparesOnEveryNode) {
  nodes_ = "2";
  start_nodes(endless("spare", "--spares 1 --max-restarts 0"));
  for (const int node : {0, 1}) await_log(node, "stands by");
  kill_rank("spare", 3);
  await_log(1, "takes part as rank 3");
  await_progress("spare");
  kill_rank("spare", 0);
  await_log(0, "takes part as rank 0");
  await_progress("spare");
  end("spare");
  EXPECT_THAT(ranks_of_steps("spare"), ElementsAre(4));
  train_whole("", "spare");
  expect_losses_of_whole("spare", 0);
}

TEST_F(TrainElasticNodes, AreTheSameOnAllNodesOrNone) {
  start_node(0, endless("differ", ""));
  nodes_ = "2:2";
  start_node(1, endless("differ", ""));
  for (const int node : {0, 1}) {
    EXPECT_NE(wait_node(node), 0);
    EXPECT_THAT(log(node), HasSubstr("different --nodes, --ranks or --spares"));
  }
}

}  // namespace
}  // namespace lockstep
