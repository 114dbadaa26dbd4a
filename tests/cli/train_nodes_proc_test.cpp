// `lockstep train` on two nodes whose ranks, or which themselves, are lost: the job continues by
// itself, and its results are those of a job that nobody disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "tests/cli/train_nodes.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_lockstep;
namespace fs = std::filesystem;

class TrainNodesRecovery : public testing::TrainNodes {
 protected:
  void train_whole(const std::string& more) {
    ASSERT_EQ(run_lockstep("train " + job("whole", more + " --ranks 4")).exit_code, 0);
  }
};

// Emulated nodes have the same borders, so mirrors lie on the other one.
constexpr const char* kMirrored =
    "survive.mirror=true parallel.zero=2 comm.emulated_nodes=2 checkpoint.every=0";

TEST_F(TrainNodesRecovery, OutlivesRanksOfAnyNode) {
  train_whole("checkpoint.every=0");
  start_nodes(job("job", "checkpoint.every=0"));
  await_step("job", 20);
  kill_rank("job", 2);
  await_log(0, "2 restarts are left");
  await_progress("job");
  kill_rank("job", 0);
  await_log(1, "1 restart is left");
  await_progress("job");
  kill_rank("job", 1);
  kill_rank("job", 3);
  expect_undisturbed("job");
  EXPECT_THAT(log(0), AllOf(HasSubstr("rank 2 on node 1 (pid "), HasSubstr("was killed by SIGKILL"),
                            HasSubstr("0 restarts are left"), HasSubstr("with the states of rank"),
                            HasSubstr("ranks 0, 1 kept their processes and wait")));
  EXPECT_THAT(log(1), AllOf(HasSubstr("rank 0 on node 0 (pid "),
                            HasSubstr("starting rank 2 again; rank 3 kept its process and waits")));
}

TEST_F(TrainNodesRecovery, OfMirroredZeroOutlivesRanksAndAWholeNode) {
  train_whole(kMirrored);
  start_nodes(job("job", kMirrored));
  await_step("job", 20);
  kill_rank("job", 3);
  await_log(0, "2 restarts are left");
  await_progress("job");
  kill_node(1);
  await_log(0, "the other nodes wait 10m 00s for node 1");
  start_node(1, job("job", kMirrored));
  expect_undisturbed("job");
  EXPECT_THAT(log(0), AllOf(HasSubstr("that of rank 3 from its mirror on rank"),
                            HasSubstr("lost node 1 (ranks 2 to 3): its launcher died"),
                            HasSubstr("that of rank 2 from its mirror on rank"),
                            Not(HasSubstr("newest checkpoint"))));
}

TEST_F(TrainNodesRecovery, WaitsForANodeThatWasLost) {
  train_whole("checkpoint.every=0");
  start_nodes(job("job", "checkpoint.every=0"));
  await_step("job", 30);
  kill_node(1);
  await_log(0, "start the same command there again (--rejoin-timeout)");
  start_node(1, job("job", "checkpoint.every=0"));
  await_log(0, "node 1 is back");
  await_progress("job");
  ::kill(launcher(1), SIGKILL);  // of its two processes the one that was started
  EXPECT_EQ(wait_node(1), 128 + SIGKILL);
  await_log(0, "1 restart is left");
  start_node(1, job("job", "checkpoint.every=0"));
  expect_undisturbed("job");
  EXPECT_THAT(log(0), AllOf(HasSubstr("lost node 1 (ranks 2 to 3)"),
                            HasSubstr("ranks 0, 1 kept their processes and wait"),
                            HasSubstr("with the states of rank 0")));
  EXPECT_THAT(log(1), HasSubstr("starting ranks 2, 3, in generation 1 of the job"));
}

TEST_F(TrainNodesRecovery, WaitsForNodeZeroToo) {
  train_whole("checkpoint.every=0");
  start_nodes(job("job", "checkpoint.every=0"));
  await_step("job", 30);
  kill_node(0);
  await_log(1, "waiting 10m 00s for node 0");
  const std::int64_t before = last_step("job");
  start_node(0, job("job", "checkpoint.every=0"));
  expect_undisturbed("job");
  EXPECT_GE(before, 30);
  EXPECT_THAT(log(1), AllOf(HasSubstr("lost node 0"), HasSubstr("joined node 0 again"),
                            HasSubstr("ranks 2, 3 kept their processes and wait")));
  EXPECT_THAT(log(0), HasSubstr("with the states of rank 2"));
}

// Two ranks are killed, and one of their replacements before it has met the others. These wait for
// it, with the only copy of the states.
TEST_F(TrainNodesRecovery, KeepsItsStatesWhenAGenerationCannotBegin) {
  for (const std::string more : {"checkpoint.every=0", kMirrored}) {
    train_whole(more);
    start_nodes(job("job", more + " --grace 10min"));
    await_step("job", 20);
    const auto former = ranks("job", "2");
    kill_rank("job", 3);
    kill_rank("job", 2);
    const auto replacement = [&] {
      const auto now = ranks("job", "2");
      return now.empty() || now == former ? 0 : now.front();
    };
    pid_t found = 0;
    ASSERT_TRUE(eventually([&] { return (found = replacement()) > 0; })) << logs();
    ::kill(found, SIGSTOP);  // at once; the test takes its time
    ::kill(found, SIGKILL);
    expect_undisturbed("job");
    EXPECT_THAT(logs(), AllOf(HasSubstr("1 restart is left"), HasSubstr("starting rank 2 again"),
                              Not(HasSubstr("newest checkpoint")), Not(HasSubstr("from scratch")),
                              Not(HasSubstr("has not come back"))));
    fs::remove_all(folder / "job");
    fs::remove_all(folder / "whole");
  }
}

// Ranks of any node, or a whole one, at random moments.
TEST_F(TrainNodesRecovery, FromWhateverIsKilledGivesTheBitsOfAnUndisturbedRun) {
  constexpr int kTrials = 3;
  std::mt19937 random(17);
  for (const std::string more : {"checkpoint.every=0", kMirrored}) {
    train_whole(more);
    for (int trial = 0; trial < kTrials; ++trial) {
      const std::string dir = fmt::format("trial{}", trial);
      const int victim = static_cast<int>(random() % 6);  // a rank, or 4 and more: a node
      const auto step = 5 + static_cast<std::int64_t>(random() % (kSteps / 2));
      const std::chrono::microseconds into(random() % 3000);
      SCOPED_TRACE(fmt::format("{}: {} {} after step {} and {} us", more,
                               victim < 4 ? "rank" : "node", victim % 4, step, into.count()));
      start_nodes(job(dir, more));
      await_step(dir, step);
      std::this_thread::sleep_for(into);  // a random moment, not a wait for one
      if (victim < 4) {
        kill_rank(dir, victim);
      } else {
        const int node = victim - 4;
        kill_node(node);
        await_log(1 - node, "(--rejoin-timeout)");
        start_node(node, job(dir, more));
      }
      expect_undisturbed(dir);
      EXPECT_THAT(logs(), Not(HasSubstr("newest checkpoint")));
      fs::remove_all(folder / dir);
    }
    fs::remove_all(folder / "whole");
  }
}

TEST_F(TrainNodesRecovery, EndsWhenANodeDoesNotComeBackAndKeepsTheCheckpoint) {
  train_whole("");
  for (const int lost : {1, 0}) {
    const std::string dir = fmt::format("without{}", lost);
    start_nodes(job(dir, "--rejoin-timeout 100ms"));
    await_step(dir, 45);
    kill_node(lost);
    EXPECT_EQ(wait_node(1 - lost), 1) << logs();
    EXPECT_THAT(log(1 - lost),
                AllOf(HasSubstr(fmt::format("the job failed: node {} has not come back", lost)),
                      HasSubstr("Start the same command on all nodes again: it continues from the "
                                "newest checkpoint")));
    expect_nobody_left(dir);
    start_nodes(job(dir, ""));
    expect_undisturbed(dir);
    EXPECT_THAT(log(0), HasSubstr("continues after step "));
  }
}

// The grace period is longer than the test: the rank is killed as soon as the others name it.
TEST_F(TrainNodesRecovery, ReplacesARankThatHangs) {
  const std::string usual = "checkpoint.every=0 survive.hang_timeout=3s --grace 10min";
  train_whole(usual);
  start_nodes(job("job", usual));
  await_step("job", 30);
  kill_rank("job", 3, SIGSTOP);
  expect_undisturbed("job");
  EXPECT_THAT(log(1), AllOf(HasSubstr("rank 3 on node 1 (pid "),
                            HasSubstr("hangs: it was stopped by a signal"),
                            HasSubstr("starting rank 3 again; rank 2 kept its process")));
  EXPECT_THAT(log(0), AllOf(HasSubstr("has lost others"), HasSubstr("with the states of rank")));
}

TEST_F(TrainNodesRecovery, OfServersContinuesFromTheNewestCheckpoint) {
  const std::string more = "parallel.strategy=parameter_server";
  train_whole(more);
  start_nodes(job("job", more));
  await_step("job", 45);
  kill_rank("job", 1);
  expect_undisturbed("job");
  EXPECT_THAT(log(1), HasSubstr("starting all 2 ranks again, from the newest checkpoint"));
  EXPECT_THAT(log(0), HasSubstr("2 restarts are left"));
}

// The budget is the job's, whichever node the ranks are on.
TEST_F(TrainNodesRecovery, GoesOnUntilItsRestartsAreSpent) {
  start_nodes(job("job", "train.steps=100000 --max-restarts 2"));
  for (const int rank : {0, 2, 3}) {
    await_progress("job");
    kill_rank("job", rank);
    await_log(0, fmt::format("rank {} on node {} (pid ", rank, rank / 2));
  }
  for (const int node : {0, 1}) {
    EXPECT_EQ(wait_node(node), 128 + SIGKILL) << logs();
    EXPECT_THAT(log(node), HasSubstr("the job failed: rank 3 on node 1 (pid "));
  }
  EXPECT_THAT(log(0), HasSubstr("no restart is left after step"));
  expect_nobody_left("job");
}

TEST_F(TrainNodesRecovery, StopsAndSavesWhileAGenerationBegins) {
  for (const int asked : {0, 1}) {
    const std::string dir = fmt::format("asked{}", asked);
    start_nodes(job(dir, "train.steps=100000 checkpoint.every=0"));
    await_step(dir, 20);
    kill_rank(dir, 2);
    await_log(1, "was killed by SIGKILL");
    ::kill(launcher(asked), SIGTERM);
    for (const int node : {0, 1}) EXPECT_EQ(wait_node(node), 75) << logs();
    EXPECT_THAT(log(0), HasSubstr("saved after step"));
    EXPECT_FALSE(fs::is_empty(folder / dir / "checkpoints"));
    expect_nobody_left(dir);
  }
}

TEST_F(TrainNodesRecovery, SaysThatItCannotSaveWithoutTheMissingNode) {
  for (const int lost : {0, 1}) {
    const std::string dir = fmt::format("lost{}", lost);
    start_nodes(job(dir, "train.steps=100000"));
    await_step(dir, 25);
    kill_node(lost);
    await_log(1 - lost, "(--rejoin-timeout)");
    ::kill(launcher(1 - lost), SIGTERM);
    EXPECT_EQ(wait_node(1 - lost), 128 + SIGTERM) << logs();
    EXPECT_THAT(log(1 - lost),
                HasSubstr(fmt::format("node {} is missing, so the steps since the newest "
                                      "checkpoint are not saved",
                                      lost)));
    expect_nobody_left(dir);
  }
}

TEST_F(TrainNodesRecovery, IsNotForErrorsThatWouldComeAgain) {
  start_nodes(job("nan", "optimizer.learning_rate=1e30 optimizer.max_grad_norm=0"));
  for (const int node : {0, 1}) {
    EXPECT_EQ(wait_node(node), 3) << logs();
    EXPECT_THAT(log(node), Not(HasSubstr("the job continues")));
  }
}

TEST_F(TrainNodesRecovery, IsTheSameOnAllNodesOrNone) {
  start_node(0, job("job", ""));
  start_node(1, job("job", "--max-restarts 1"));
  for (const int node : {0, 1}) {
    EXPECT_NE(wait_node(node), 0);
    EXPECT_THAT(log(node), HasSubstr("give all nodes the same"));
  }
}

TEST_F(TrainNodesRecovery, CanBeTurnedOff) {
  start_nodes(job("job", "train.steps=100000 --max-restarts 0"));
  await_step("job", 20);
  kill_node(1);
  EXPECT_EQ(wait_node(0), 1) << logs();
  EXPECT_THAT(log(0), AllOf(HasSubstr("lost node 1: its launcher died"), Not(HasSubstr("wait "))));
  expect_nobody_left("job");
}

}  // namespace
}  // namespace lockstep
