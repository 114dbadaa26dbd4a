// `lockstep train --ranks MIN:MAX` and `--spares`: ranks are killed and come back, and the losses
// are those of a job with always the same ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/train_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::TrainRanks;
namespace fs = std::filesystem;

class TrainElastic : public TrainRanks {
 protected:
  // Long enough for everything that a test does meanwhile; it ends by end().
  std::string job(const std::string& dir, const std::string& more) const {
    return settings(dir,
                    "train.steps=1000000 checkpoint.every=0 optimizer.learning_rate=1e-4 " + more);
  }

  std::string log() const { return text_of(folder / "log.txt"); }

  void wait_for_steps(const std::string& dir, std::int64_t more) const {
    const std::int64_t before = last_step(dir);
    ASSERT_TRUE(
        eventually([&] { return last_step(dir) >= before + more; }, std::chrono::minutes(2)))
        << log();
  }
  void wait_for_log(const std::string& text) const {
    ASSERT_TRUE(
        eventually([&] { return log().find(text) != std::string::npos; }, std::chrono::minutes(2)))
        << text << "\n"
        << log();
  }
  int count_in_log(const std::string& text) const {
    const std::string all = log();
    int count = 0;
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++count;
    return count;
  }
  // By the number that it was started with.
  void kill_rank(const std::string& dir, const std::string& rank) const {
    const auto found = ranks(dir, rank);
    ASSERT_EQ(found.size(), 1u) << log();
    ::kill(found.front(), SIGKILL);
  }
  void end(const std::string& dir, pid_t launcher) const {
    ::kill(launcher, SIGTERM);
    const int status = wait_for(launcher);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << log();
    expect_nobody_left(dir);
  }
  void resize(const std::string& dir, int ranks) const {
    const Outcome outcome =
        run_lockstep(fmt::format("resize {} {}", (folder / dir).string(), ranks));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text << log();
  }

  // The undisturbed job with the same settings, for as many steps as `dir` has, and more.
  void train_whole(const std::string& more, const std::string& dir) const {
    const std::int64_t steps = last_step(dir);
    const pid_t launcher = start(job("whole", more + " --ranks 4"));
    ASSERT_TRUE(eventually([&] { return last_step("whole") >= steps; }, std::chrono::minutes(2)))
        << log();
    end("whole", launcher);
  }

  // What the record of the run has, of which the live page makes its marks.
  std::vector<int> workers_of_begins(const std::string& dir) const {
    std::vector<int> all;
    std::ifstream file(folder / dir / "log.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event["event"] == "begin") all.push_back(event["workers"]);
    }
    return all;
  }

  // Kills a rank of four for which there is no restart, and asks for a fourth again.
  void lose_one_and_grow(const std::string& dir, const std::string& more, const std::string& says) {
    fs::remove(folder / "log.txt");
    const pid_t launcher = start(job(dir, more + " --ranks 3:4 --max-restarts 0"));
    wait_for_steps(dir, 30);
    kill_rank(dir, "0");
    wait_for_log("the job continues with 3 ranks instead of 4");
    wait_for_steps(dir, 30);
    resize(dir, 4);
    wait_for_log("the job continues with 4 ranks instead of 3");
    wait_for_steps(dir, 30);
    end(dir, launcher);
    EXPECT_THAT(log(), AllOf(HasSubstr("was killed by SIGKILL"), HasSubstr("no restart is left"),
                             HasSubstr("takes part as rank 3"), HasSubstr(says)));
    EXPECT_THAT(ranks_of_steps(dir), ElementsAre(4, 3, 4));
    EXPECT_THAT(workers_of_begins(dir), ElementsAre(4, 3, 4));
    train_whole(more, dir);
    expect_losses_of_whole(dir, 1e-5);
    fs::remove_all(folder / dir);
    fs::remove_all(folder / "whole");
  }
};

TEST_F(TrainElastic, GoesOnWithFewerRanksAndGrowsAgain) {
  lose_one_and_grow("ddp", "", "rank 1 is rank 0, rank 2 is rank 1, rank 3 is rank 2 now");
}

// Rank numbers of kept shards are those of the generation before: rank 1 was rank 2.
TEST_F(TrainElastic, OfMirroredZeroDividesItsShardsAnew) {
  for (const std::string stage : {"1", "2", "3"}) {
    lose_one_and_grow("zero" + stage, "survive.mirror=true parallel.zero=" + stage,
                      "resharded among 3 ranks, that of rank 0 from its mirror");
  }
}

// Nothing is kept of the dead rank's shard; the ranks that regroup save first.
TEST_F(TrainElastic, OfZeroContinuesFromACheckpoint) {
  lose_one_and_grow("zero", "parallel.zero=2 checkpoint.every=10",
                    "starting all 3 ranks again, from the newest checkpoint");
}

// Nothing is kept in memory, and a file lies where the checkpoints would be.
TEST_F(TrainElastic, KeepsItsRanksWhereTheirStatesCannotBeSaved) {
  const std::string more = "parallel.zero=2";
  const pid_t launcher = start(job("zero", more + " --ranks 3:4 --max-restarts 0"));
  wait_for_steps("zero", 30);
  const fs::path checkpoints = folder / "zero" / "checkpoints";
  fs::remove_all(checkpoints);
  std::ofstream(checkpoints) << "no folder\n";
  for (const int attempt : {1, 2}) {
    const std::int64_t before = last_step("zero");
    resize("zero", 3);
    ASSERT_TRUE(eventually([&] { return count_in_log("the job keeps its 4 ranks") == attempt; }))
        << log();
    EXPECT_GE(last_step("zero"), before);
    wait_for_steps("zero", 30);
    EXPECT_THAT(log(), AllOf(HasSubstr("could not be saved"),
                             Not(HasSubstr("continues with 3 ranks instead"))));
  }
  fs::remove(checkpoints);
  resize("zero", 3);
  wait_for_steps("zero", 60);
  end("zero", launcher);
  EXPECT_THAT(ranks_of_steps("zero"), ElementsAre(4, 3));
  EXPECT_THAT(workers_of_begins("zero"), ElementsAre(4, 3));
  train_whole(more, "zero");
  expect_losses_of_whole("zero", 1e-5);
}

TEST_F(TrainElastic, OfATreeGivesTheBitsOfAnUndisturbedRun) {
  const std::string tree = "train.micro_batch_size=1 parallel.reduction=tree";
  const pid_t launcher = start(job("tree", tree + " --ranks 2:4 --max-restarts 0"));
  wait_for_steps("tree", 30);
  kill_rank("tree", "1");
  kill_rank("tree", "3");
  wait_for_log("the job continues with 2 ranks");
  wait_for_steps("tree", 30);
  resize("tree", 4);
  wait_for_log("the job continues with 4 ranks instead of 2");
  wait_for_steps("tree", 30);
  resize("tree", 2);
  wait_for_log("the job continues with 2 ranks instead of 4");
  wait_for_steps("tree", 30);
  end("tree", launcher);
  train_whole(tree, "tree");
  auto whole = losses("whole");
  const auto mine = losses("tree");
  ASSERT_GE(whole.size(), mine.size());
  whole.resize(mine.size());
  EXPECT_EQ(mine, whole);
}

// What a single rank has left is enough.
TEST_F(TrainElastic, GoesOnWithASingleRank) {
  for (const std::string more : {"", "parallel.zero=2 survive.mirror=true"}) {
    const std::string dir = more.empty() ? "single" : "zero";
    fs::remove(folder / "log.txt");
    const pid_t launcher = start(job(dir, more + " --ranks 1:2 --max-restarts 0"));
    wait_for_steps(dir, 30);
    kill_rank(dir, "0");
    wait_for_log("the job continues with 1 rank instead of 2");
    wait_for_steps(dir, 30);
    resize(dir, 2);
    wait_for_log("the job continues with 2 ranks instead of 1");
    wait_for_steps(dir, 30);
    end(dir, launcher);
    EXPECT_THAT(ranks_of_steps(dir), ElementsAre(2, 1, 2));
    train_whole(more, dir);
    expect_losses_of_whole(dir, 1e-5);
    fs::remove_all(folder / "whole");
  }
}

TEST_F(TrainElastic, StartsRanksAgainBeforeItGoesOnWithFewer) {
  const pid_t launcher = start(job("again", "--ranks 2:4 --max-restarts 1"));
  wait_for_steps("again", 20);
  kill_rank("again", "1");
  wait_for_log("0 restarts are left");
  wait_for_steps("again", 20);
  kill_rank("again", "2");
  wait_for_log("the job continues with 3 ranks instead of 4");
  wait_for_steps("again", 20);
  end("again", launcher);
  EXPECT_THAT(ranks_of_steps("again"), ElementsAre(4, 3));
}

TEST_F(TrainElastic, PutsASpareInTheDeadRanksPlace) {
  const std::string steps = "train.steps=600 ";
  for (const std::string more : {"", "parallel.zero=2 survive.mirror=true "}) {
    fs::remove(folder / "log.txt");
    ASSERT_EQ(run_lockstep("train " + job("whole", more + steps + "--ranks 4")).exit_code, 0);
    const pid_t launcher = start(job("spare", more + steps +
                                                  "--ranks 4 --spares 1 --max-restarts 0 "
                                                  "debug.slow_rank=3 debug.slow_factor=8"));
    wait_for_log("stands by");
    kill_rank("spare", "2");
    const auto killed = std::chrono::steady_clock::now();
    const std::int64_t before = last_step("spare");
    EXPECT_TRUE(eventually([&] { return last_step("spare") > before + 1; })) << log();
    const auto recovery = std::chrono::steady_clock::now() - killed;
    const int status = wait_for(launcher);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << log();
    EXPECT_THAT(log(),
                AllOf(HasSubstr("takes part as rank 2"), Not(HasSubstr("restarts are left"))));
    EXPECT_EQ(losses("spare"), losses("whole"));
    EXPECT_LT(recovery, std::chrono::seconds(5));
    fmt::print("next step {:.2f} s after the kill\n",
               std::chrono::duration<double>(recovery).count());
    expect_nobody_left("spare");
    fs::remove_all(folder / "spare");
    fs::remove_all(folder / "whole");
  }
}

TEST_F(TrainElastic, SavesAndEndsWithFewerRanksThanItNeeds) {
  const pid_t launcher = start(job("few", "--ranks 3:4 --max-restarts 0"));
  wait_for_steps("few", 20);
  kill_rank("few", "1");
  kill_rank("few", "2");
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr("2 ranks are left, and the job needs 3 (--ranks 3:4): it "
                                     "saves and ends"),
                           HasSubstr("saved after step"), HasSubstr("the job failed: rank")));
  EXPECT_FALSE(fs::is_empty(folder / "few" / "checkpoints")) << log();
  expect_nobody_left("few");
}

TEST_F(TrainElastic, AnswersWhoAsksForAnotherNumberOfRanks) {
  const pid_t launcher = start(job("asked", "--ranks 2:3 --max-restarts 0"));
  wait_for_steps("asked", 5);
  for (const std::string ranks : {"1", "4"}) {
    const Outcome refused = run_lockstep("resize " + (folder / "asked").string() + " " + ranks);
    EXPECT_EQ(refused.exit_code, 2) << ranks;
    EXPECT_THAT(refused.text, HasSubstr("it runs with --ranks 2:3")) << ranks;
  }
  end("asked", launcher);
  const Outcome nobody = run_lockstep("resize " + (folder / "asked").string() + " 2");
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.text, HasSubstr("no elastic job answers"));
  EXPECT_FALSE(fs::exists(folder / "asked" / "resize"));
}

// What lies in the place of a request is no reason to end.
TEST_F(TrainElastic, OutlivesWhatIsNoRequest) {
  const pid_t launcher = start(job("odd", "--ranks 1:2"));
  wait_for_steps("odd", 5);
  fs::create_directory(folder / "odd" / "resize");
  wait_for_steps("odd", 50);
  EXPECT_EQ(::mkfifo((folder / "odd" / "resize").c_str(), 0600) == 0 || errno == EEXIST, true);
  wait_for_steps("odd", 50);
  ::kill(launcher, SIGTERM);
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << log();
  expect_nobody_left("odd");
}

TEST_F(TrainElastic, SaysWhatCannotBe) {
  const auto refusal = [&](const std::string& more) {
    const Outcome outcome = run_lockstep("train " + settings("refused", more));
    EXPECT_EQ(outcome.exit_code, 2) << more << "\n" << outcome.text;
    EXPECT_FALSE(fs::exists(folder / "refused")) << more;
    return outcome.text;
  };
  EXPECT_THAT(refusal("--ranks 4:2"), HasSubstr("write the fewest first: --ranks 2:4"));
  EXPECT_THAT(refusal("--ranks 0:3"), HasSubstr("a job has 1 to 4096 ranks"));
  EXPECT_THAT(refusal("--ranks 2:"), HasSubstr("like --ranks 2:4"));
  EXPECT_THAT(refusal("--ranks two:4"), HasSubstr("like --ranks 2:4"));
  EXPECT_THAT(refusal("--ranks 2 --spares -1"), HasSubstr("--spares"));
  EXPECT_THAT(refusal("--ranks 2:8"), HasSubstr("start 4 or fewer"));
  EXPECT_THAT(refusal("--ranks 2 --nodes 2:1"), HasSubstr("write the fewest first: --nodes 1:2"));
  EXPECT_THAT(refusal("--ranks 2 --nodes 1:2 parallel.tensor=2"), HasSubstr("not for meshes"));
  EXPECT_THAT(refusal("--ranks 2:4 parallel.strategy=parameter_server"),
              HasSubstr("not for parallel.strategy"));
  EXPECT_THAT(refusal("--ranks 2:4 parallel.tensor=2"), HasSubstr("not for meshes"));
  EXPECT_THAT(refusal("--ranks 2 --spares 1 comm.backend=threads"),
              HasSubstr("needs ranks that are processes"));
  const Outcome launched = run_lockstep("launch -n 2 " + in_build("lockstep") + " train " +
                                        settings("refused", "--spares 1"));
  EXPECT_EQ(launched.exit_code, 2);
  EXPECT_THAT(launched.text, HasSubstr("has no effect: a launcher started this process"));
}

}  // namespace
}  // namespace lockstep
