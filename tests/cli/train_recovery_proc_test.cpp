// `lockstep train` whose ranks are killed at random moments: the job continues by itself, and its
// results are those of a job that nobody disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "tests/cli/train_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::TrainRanks;
namespace fs = std::filesystem;

class TrainRecovery : public TrainRanks {
 protected:
  static constexpr int kSteps = 300;
  static constexpr const char* kEnd = "00000300";

  std::string job(const std::string& dir, const std::string& more) const {
    return settings(dir, fmt::format("train.steps={} checkpoint.every=20 train.validate_every=50 "
                                     "--ranks 4 {}",
                                     kSteps, more));
  }

  // Every file of states of the last checkpoint.
  std::map<std::string, std::string> all_states(const std::string& dir) const {
    std::map<std::string, std::string> files;
    for (const auto& entry :
         fs::directory_iterator(folder / dir / "checkpoints" / fmt::format("step-{}", kEnd))) {
      const std::string name = entry.path().filename();
      if (name.starts_with("states")) files[name] = text_of(entry.path());
    }
    EXPECT_FALSE(files.empty()) << dir;
    return files;
  }

  // Starts the job, kills a rank by `signal` somewhere in the step after `step`, and waits for the
  // job's end.
  int train_and_kill(const std::string& dir, const std::string& arguments, const std::string& rank,
                     std::int64_t step, std::chrono::microseconds into, int signal = SIGKILL) {
    const pid_t launcher = start(arguments);
    EXPECT_TRUE(eventually([&] { return last_step(dir) >= step; })) << log();
    std::this_thread::sleep_for(into);  // a random moment, not a wait for one
    const auto found = ranks(dir, rank);
    EXPECT_EQ(found.size(), 1u) << log();
    if (!found.empty()) ::kill(found.front(), signal);
    done_before_ = last_step(dir);
    const int status = wait_for(launcher);
    expect_nobody_left(dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Kills these ranks at once after a step and waits for the job's end.
  void train_and_kill_several(const std::string& dir, const std::string& arguments,
                              const std::vector<std::string>& several) {
    const pid_t launcher = start(arguments);
    ASSERT_TRUE(eventually([&] { return last_step(dir) >= 45; })) << log();
    for (const std::string& rank : several) {
      const auto found = ranks(dir, rank);
      ASSERT_EQ(found.size(), 1u);
      ::kill(found.front(), SIGKILL);
    }
    const int status = wait_for(launcher);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << log();
    EXPECT_EQ(losses(dir), losses("whole"));
    EXPECT_EQ(all_states(dir), all_states("whole"));
    expect_nobody_left(dir);
  }

  // The step after which the job continued, as it said.
  std::int64_t continued_after() const {
    constexpr std::string_view kSays = "continues after step ";
    const std::string text = log();
    const auto at = text.find(std::string(kSays));
    return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + kSays.size());
  }

  std::int64_t done_before_ = 0;  // the last kill

  std::string log() const { return text_of(folder / "log.txt"); }

  // Jobs with the settings, one undisturbed, the others each with a rank killed, or stopped.
  void expect_recovers(const std::string& more, int trials, const std::string& says,
                       int signal = SIGKILL) {
    std::mt19937 random(17);
    ASSERT_EQ(run_lockstep("train " + job("whole", more)).exit_code, 0);
    for (int trial = 0; trial < trials; ++trial) {
      const std::string dir = fmt::format("trial{}", trial);
      const auto rank = std::to_string(random() % 4);
      const auto step = 5 + static_cast<std::int64_t>(random() % (kSteps - 150));
      const std::chrono::microseconds into(random() % 3000);
      fs::remove(folder / "log.txt");
      SCOPED_TRACE(
          fmt::format("{}: rank {} after step {} and {} us", more, rank, step, into.count()));
      EXPECT_EQ(train_and_kill(dir, job(dir, more), rank, step, into, signal), 0) << log();
      EXPECT_EQ(losses(dir), losses("whole"));
      EXPECT_EQ(all_states(dir), all_states("whole"));
      EXPECT_THAT(log(), AllOf(HasSubstr("rank " + rank + " ("), HasSubstr("pid "),
                               HasSubstr(signal == SIGKILL ? "was killed by SIGKILL"
                                                           : "hangs: it was stopped"),
                               HasSubstr("2 restarts are left"), HasSubstr(says)));
      // From memory at most one step is done again.
      if (!says.ends_with("checkpoint")) {
        EXPECT_GE(continued_after(), done_before_ - 1) << log();
      }
      fs::remove_all(folder / dir);
    }
    fs::remove_all(folder / "whole");
  }
};

TEST_F(TrainRecovery, OfDataParallelGivesTheBitsOfAnUndisturbedRun) {
  expect_recovers("", 6, "with the states of rank");
}

// No checkpoint is there to begin from: all of the states come from another rank.
TEST_F(TrainRecovery, OfDataParallelNeedsNoCheckpoint) {
  expect_recovers("checkpoint.every=0 train.precision=bf16", 2, "with the states of rank");
}

// Ranks notice a loss when they next communicate, here long after the grace period. The model is
// large enough that a late scheduler, which the slow rank multiplies too, is a small part of a
// step.
TEST_F(TrainRecovery, OfDataParallelWaitsForRanksThatComputeLong) {
  const std::string arguments =
      settings("slow",
               "train.steps=10 checkpoint.every=0 model.layers=4 model.hidden=128 model.heads=4 "
               "train.seq_len=128 debug.slow_rank=0 debug.slow_factor=12 --ranks 3 --grace 50ms");
  EXPECT_EQ(train_and_kill("slow", arguments, "1", 4, std::chrono::milliseconds(1)), 0) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr("with the states of rank"), HasSubstr("kept their processes"),
                           Not(HasSubstr("has not come back"))));
}

TEST_F(TrainRecovery, OfDataParallelOutlivesTheLossOfAllButOne) {
  ASSERT_EQ(run_lockstep("train " + job("whole", "checkpoint.every=0")).exit_code, 0);
  const pid_t launcher = start(job("three", "checkpoint.every=0"));
  ASSERT_TRUE(eventually([&] { return last_step("three") >= 40; })) << log();
  for (const std::string rank : {"0", "1", "3"}) {
    const auto found = ranks("three", rank);
    ASSERT_EQ(found.size(), 1u);
    ::kill(found.front(), SIGKILL);
  }
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << log();
  EXPECT_EQ(losses("three"), losses("whole"));
  EXPECT_EQ(all_states("three"), all_states("whole"));
  EXPECT_THAT(log(),
              AllOf(HasSubstr("rank 2 kept its process"), HasSubstr("with the states of rank 2")));
  expect_nobody_left("three");
}

// The grace period is longer than the test: the rank is killed as soon as the others name it.
TEST_F(TrainRecovery, ReplacesARankThatHangs) {
  const std::string usual = "checkpoint.every=0 survive.hang_timeout=5s --grace 10min";
  expect_recovers(usual, 1, "with the states of rank", SIGSTOP);
  EXPECT_THAT(log(), AllOf(HasSubstr("has lost others"), HasSubstr("last operations of rank"),
                           HasSubstr("kept their processes")));
  expect_recovers(usual + " parallel.zero=2 survive.mirror=true", 1, "from its mirror on rank",
                  SIGSTOP);
}

// The replacement is as slow, and is left alone: another eviction would take the last restart.
TEST_F(TrainRecovery, ReplacesAStraggler) {
  const auto straggling = [&](const std::string& dir, const std::string& more) {
    return settings(dir,
                    "train.steps=90 checkpoint.every=0 model.layers=4 model.hidden=96 "
                    "train.seq_len=64 debug.slow_rank=1 debug.slow_factor=15 --ranks 3 " +
                        more);
  };
  ASSERT_EQ(run_lockstep("train " + straggling("whole", "")).exit_code, 0);
  const int status =
      wait_for(start(straggling("evicted", "survive.evict_slow=4 --max-restarts 2")));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << log();
  EXPECT_EQ(losses("evicted"), losses("whole"));
  const std::string says = " is evicted: it took ";
  EXPECT_THAT(log(), AllOf(HasSubstr("rank 1 (pid"), HasSubstr(says),
                           HasSubstr("with the states of rank")));
  EXPECT_EQ(log().find(says), log().rfind(says)) << log();
  expect_nobody_left("evicted");
}

// One that runs tells where it is.
TEST_F(TrainRecovery, PrintsTheStackOfARankThatHangs) {
  const pid_t launcher =
      start(settings("slow",
                     "train.steps=10 checkpoint.every=0 debug.slow_rank=1 debug.slow_factor=1000 "
                     "model.layers=8 train.global_batch_size=64 train.micro_batch_size=1 "
                     "survive.hang_timeout=1s --ranks 2 --max-restarts 1 --grace 10min"));
  EXPECT_TRUE(eventually([&] { return log().find("stack of rank 1") != std::string::npos; },
                         std::chrono::minutes(3)))
      << log();
  ::kill(launcher, SIGINT);
  ::kill(launcher, SIGINT);
  wait_for(launcher);
  EXPECT_THAT(log(), AllOf(HasSubstr("rank 1 (pid"), HasSubstr("its stack follows"),
                           HasSubstr("lockstep(+0x")));
  expect_nobody_left("slow");
}

// A rank is killed; the stop request comes while its replacement starts, however far that is.
TEST_F(TrainRecovery, SavesWhenItIsAskedToStopWhileAGenerationBegins) {
  const std::string more = "train.steps=100000 checkpoint.every=0 ";
  for (const std::string strategy : {"", "parallel.zero=1 survive.mirror=true"}) {
    const std::string dir = strategy.empty() ? "ddp" : "zero";
    for (const std::string says : {"was killed by SIGKILL", "starting rank 2 again"}) {
      SCOPED_TRACE(dir + ": " + says);
      fs::remove_all(folder / dir);
      fs::remove(folder / "log.txt");
      const pid_t launcher = start(job(dir, more + strategy));
      ASSERT_TRUE(eventually([&] { return last_step(dir) >= 20; })) << log();
      const auto found = ranks(dir, "2");
      ASSERT_EQ(found.size(), 1u);
      ::kill(found.front(), SIGKILL);
      EXPECT_TRUE(eventually([&] { return log().find(says) != std::string::npos; })) << log();
      ::kill(launcher, SIGTERM);
      const int status = wait_for(launcher);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << log();
      EXPECT_THAT(log(),
                  AllOf(HasSubstr("saved after step"), Not(HasSubstr("before the first step"))));
      EXPECT_FALSE(fs::is_empty(folder / dir / "checkpoints")) << log();
      expect_nobody_left(dir);
    }
  }
}

// Here no rank keeps states. The request comes before the next generation, or in it.
TEST_F(TrainRecovery, SavesOrSaysThatItCouldNot) {
  const pid_t launcher =
      start(job("pipeline", "train.steps=100000 parallel.pipeline=2 train.micro_batch_size=1"));
  ASSERT_TRUE(eventually([&] { return last_step("pipeline") >= 25; })) << log();
  const auto found = ranks("pipeline", "2");
  ASSERT_EQ(found.size(), 1u);
  ::kill(found.front(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return log().find("the job continues") != std::string::npos; }));
  ::kill(launcher, SIGTERM);
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << log();
  EXPECT_THAT(log(), AnyOf(HasSubstr("saved after step"), HasSubstr("are not saved")));
  expect_nobody_left("pipeline");
}

TEST_F(TrainRecovery, GoesOnUntilItsRestartsAreSpent) {
  const pid_t launcher = start(job("twice", "train.steps=100000 --max-restarts 2"));
  for (const auto& [rank, left] : std::initializer_list<std::pair<const char*, const char*>>{
           {"3", "1 restart is left"}, {"0", "0 restarts are left"}, {"3", "no restart is left"}}) {
    // Steps of a generation that has begun: a kill before that is of the same recovery.
    const std::int64_t before = last_step("twice");
    ASSERT_TRUE(eventually([&] { return last_step("twice") >= before + 20; })) << log();
    const auto found = ranks("twice", rank);
    ASSERT_EQ(found.size(), 1u);
    ::kill(found.front(), SIGKILL);
    ASSERT_TRUE(eventually([&] { return log().find(left) != std::string::npos; })) << log();
  }
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr("1 restart is left"), HasSubstr("0 restarts are left"),
                           HasSubstr("no restart is left after step"),
                           HasSubstr("the job failed: rank 3")));
  expect_nobody_left("twice");
}

TEST_F(TrainRecovery, OfZeroGivesTheBitsOfAnUndisturbedRun) {
  for (const std::string stage : {"1", "2", "3"}) {
    expect_recovers("parallel.zero=" + stage, 1, "from the newest checkpoint");
  }
}

// No checkpoint is there to begin from: all shards are in memory, that of the dead in its mirror.
TEST_F(TrainRecovery, OfMirroredZeroNeedsNoCheckpoint) {
  for (const std::string stage : {"1", "2", "3"}) {
    expect_recovers("survive.mirror=true checkpoint.every=0 parallel.zero=" + stage, 2,
                    "from its mirror on rank");
  }
}

TEST_F(TrainRecovery, OfMirroredZeroWorksAcrossNodesWithHalfPrecision) {
  expect_recovers(
      "survive.mirror=true checkpoint.every=0 parallel.zero=3 comm.emulated_nodes=2 "
      "train.precision=f16 parallel.partition=layer",
      1, "from its mirror on rank");
}

// Every rank's mirror is on the next one.
TEST_F(TrainRecovery, OfMirroredZeroOutlivesRanksThatAreNoNeighbours) {
  const std::string more = "survive.mirror=true checkpoint.every=0 parallel.zero=2";
  ASSERT_EQ(run_lockstep("train " + job("whole", more)).exit_code, 0);
  train_and_kill_several("two", job("two", more), {"1", "3"});
  EXPECT_THAT(log(), AllOf(HasSubstr("that of rank 1 from its mirror on rank 2"),
                           HasSubstr("that of rank 3 from its mirror on rank 0")));
}

TEST_F(TrainRecovery, OfMirroredZeroTakesTheCheckpointWhenAMirrorIsLostToo) {
  const std::string more = "survive.mirror=true parallel.zero=2";
  ASSERT_EQ(run_lockstep("train " + job("whole", more)).exit_code, 0);
  train_and_kill_several("two", job("two", more), {"1", "2"});
  EXPECT_THAT(log(), AllOf(HasSubstr("the shard of rank 1 and its mirror are lost: the run "
                                     "continues from the newest checkpoint"),
                           HasSubstr("ranks 0, 3 kept their processes")));
  EXPECT_GE(continued_after(), 40);
}

TEST_F(TrainRecovery, OfServersGivesTheBitsOfAnUndisturbedRun) {
  expect_recovers("parallel.strategy=parameter_server", 1, "from the newest checkpoint");
}

// Every worker has a server, or some. Slices of a server that is lost are on the next rank.
TEST_F(TrainRecovery, OfMirroredServersNeedsNoCheckpoint) {
  const std::string mirrored =
      "survive.mirror=true checkpoint.every=0 parallel.strategy=parameter_server ";
  for (const std::string more :
       {"parallel.servers=4", "parallel.servers=2 train.precision=f16 optimizer.max_grad_norm=0",
        "parallel.servers=4 parallel.schedule=fifo"}) {
    expect_recovers(mirrored + more, 2, "with the slices in memory");
  }
}

TEST_F(TrainRecovery, OfMirroredServersOutlivesTheOnlyServer) {
  const std::string more =
      "survive.mirror=true checkpoint.every=0 parallel.strategy=parameter_server";
  ASSERT_EQ(run_lockstep("train " + job("whole", more)).exit_code, 0);
  train_and_kill_several("one", job("one", more), {"0"});
  EXPECT_THAT(log(), AllOf(HasSubstr("those of server 0 from their mirror on rank 1"),
                           HasSubstr("ranks 1, 2, 3 kept their processes")));
}

TEST_F(TrainRecovery, OfMirroredServersTakesTheCheckpointWhenAMirrorIsLostToo) {
  const std::string more =
      "survive.mirror=true parallel.strategy=parameter_server parallel.servers=4";
  ASSERT_EQ(run_lockstep("train " + job("whole", more)).exit_code, 0);
  train_and_kill_several("two", job("two", more), {"1", "2"});
  EXPECT_THAT(log(), AllOf(HasSubstr("the shard of rank 1 and its mirror are lost: the run "
                                     "continues from the newest checkpoint"),
                           HasSubstr("ranks 0, 3 kept their processes")));
  fs::remove(folder / "log.txt");
  train_and_kill_several("apart", job("apart", more), {"1", "3"});
  EXPECT_THAT(log(), AllOf(HasSubstr("those of server 1 from their mirror on rank 2"),
                           HasSubstr("those of server 3 from their mirror on rank 0")));
}

TEST_F(TrainRecovery, OfMeshesGivesTheBitsOfAnUndisturbedRun) {
  for (const std::string axes : {"parallel.pipeline=2", "parallel.tensor=2",
                                 "parallel.expert=2 model.family=mixtral model.experts=4"}) {
    expect_recovers(axes + " train.micro_batch_size=1", 1, "from the newest checkpoint");
  }
}

// Worker 0 leads: the others do not continue without it, and wait for it when it is back. Of others
// it takes over shares, of steps that it may have reported.
TEST_F(TrainRecovery, OfServersThatDoNotWaitReportsEveryStepOnce) {
  for (const auto& [consistency, rank] : std::initializer_list<std::pair<std::string, std::string>>{
           {"asp", "0"}, {"ssp", "0"}, {"asp", "2"}, {"ssp", "3"}}) {
    SCOPED_TRACE(consistency + ", rank " + rank);
    fs::remove(folder / "log.txt");
    fs::remove_all(folder / consistency);
    const std::string arguments = job(consistency,
                                      "parallel.strategy=parameter_server train.steps=1000 "
                                      "parallel.consistency=" +
                                          consistency);
    EXPECT_EQ(train_and_kill(consistency, arguments, rank, 40, {}), 0) << log();
    EXPECT_THAT(log(), HasSubstr("\nfinished "));
    EXPECT_FALSE(states(consistency, "00001000").empty());
    const auto lines = losses(consistency);
    const auto number = [](const std::string& line) { return std::stoll(line.substr(8)); };
    for (std::size_t i = 1; i < lines.size(); ++i) {
      EXPECT_LT(number(lines[i - 1]), number(lines[i]));
    }
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(number(lines.back()), 1000);
  }
}

// With mirrors the others keep their processes and slices, whoever dies that is needed.
TEST_F(TrainRecovery, OfMirroredServersThatDoNotWaitNeedsNoCheckpoint) {
  struct Case {
    std::string consistency, servers, rank, says;
  };
  for (const auto& [consistency, servers, rank, says] :
       {Case{"asp", "4", "0", ", those of server 0 from their mirror on rank 1"},
        Case{"ssp", "3", "0", ", those of server 0 from their mirror on rank 1"},
        Case{"asp", "3", "2", ", those of server 2 from their mirror on rank 0"},
        Case{"ssp", "4", "3", ", those of server 3 from their mirror on rank 0"},
        Case{"asp", "2", "3", "\n"}}) {
    SCOPED_TRACE(fmt::format("{}, {} servers, rank {}", consistency, servers, rank));
    fs::remove(folder / "log.txt");
    fs::remove_all(folder / consistency);
    const std::string arguments =
        job(consistency,
            fmt::format("parallel.strategy=parameter_server survive.mirror=true checkpoint.every=0 "
                        "train.steps=1000 parallel.consistency={} parallel.servers={}",
                        consistency, servers));
    EXPECT_EQ(train_and_kill(consistency, arguments, rank, 40, {}), 0) << log();
    EXPECT_THAT(log(), AllOf(HasSubstr("\nfinished "), HasSubstr("kept their processes"),
                             Not(HasSubstr("not mirrored any more")),
                             HasSubstr(", with the slices in memory" + says)));
    EXPECT_GE(continued_after(), 30) << log();
    const auto lines = losses(consistency);
    const auto number = [](const std::string& line) { return std::stoll(line.substr(8)); };
    for (std::size_t i = 1; i < lines.size(); ++i) {
      EXPECT_LT(number(lines[i - 1]), number(lines[i]));
    }
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(number(lines.back()), 1000);
  }
}

TEST_F(TrainRecovery, IsForASingleRankToo) {
  const auto single = [&](const std::string& dir) {
    return settings(dir,
                    fmt::format("train.steps={} checkpoint.every=20 --max-restarts 1", kSteps));
  };
  ASSERT_EQ(run_lockstep("train " + single("whole")).exit_code, 0);
  EXPECT_EQ(train_and_kill("single", single("single"), "0", 45, {}), 0) << log();
  EXPECT_EQ(losses("single"), losses("whole"));
  EXPECT_EQ(all_states("single"), all_states("whole"));
}

TEST_F(TrainRecovery, EndsTheJobWhenNoRestartIsLeft) {
  EXPECT_EQ(train_and_kill("none", job("none", "--max-restarts 0"), "1", 30, {}), 128 + SIGKILL);
  EXPECT_THAT(log(), AllOf(HasSubstr("the job failed: rank 1"), Not(HasSubstr("starting"))));
}

TEST_F(TrainRecovery, IsNotForErrorsThatWouldComeAgain) {
  const Outcome settings_error = run_lockstep("train " + job("bad", "model.heads=5"));
  EXPECT_EQ(settings_error.exit_code, 2) << settings_error.text;
  const Outcome data_error = run_lockstep("train " + job("bad", "data.text=/nowhere.txt"));
  EXPECT_NE(data_error.exit_code, 0);
  const Outcome nan =
      run_lockstep("train " + job("nan", "optimizer.learning_rate=1e30 optimizer.max_grad_norm=0"));
  EXPECT_EQ(nan.exit_code, 3) << nan.text;
  for (const Outcome& outcome : {settings_error, data_error, nan}) {
    EXPECT_THAT(outcome.text, Not(HasSubstr("the job continues"))) << outcome.text;
  }
}

TEST_F(TrainRecovery, IsNotForAStopRequest) {
  const pid_t launcher = start(job("stop", "train.steps=100000"));
  ASSERT_TRUE(eventually([&] { return last_step("stop") >= 20; }));
  ::kill(launcher, SIGTERM);
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 75) << log();
  EXPECT_THAT(log(), Not(HasSubstr("the job continues")));
  expect_nobody_left("stop");
}

TEST_F(TrainRecovery, NeedsRanksThatAreProcessesOfThisLauncher) {
  const Outcome threads =
      run_lockstep("train " + job("threads", "comm.backend=threads --max-restarts 1"));
  EXPECT_EQ(threads.exit_code, 2);
  EXPECT_THAT(threads.text, HasSubstr("needs ranks that are processes"));
  const Outcome launched = run_lockstep("launch -n 2 " + in_build("lockstep") + " train " +
                                        settings("launched", "train.steps=2 --max-restarts 1"));
  EXPECT_EQ(launched.exit_code, 2);
  EXPECT_THAT(launched.text, HasSubstr("restarts are the launcher's"));
}

}  // namespace
}  // namespace lockstep
