// `lockstep train` as several processes that train one model: by --ranks, and by other launchers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/train_ranks.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::shell;
using testing::TrainRanks;
namespace fs = std::filesystem;

TEST_F(TrainRanks, GiveTheBitsOfOneAndGoOnWithAnyNumber) {
  const std::string steps = "train.steps=12 checkpoint.every=4 train.validate_every=6 ";
  ASSERT_EQ(run_lockstep("train " + tree("one", steps)).exit_code, 0);
  for (const std::string ranks : {"2", "4"}) {
    const Outcome outcome = run_lockstep("train " + tree(ranks, steps) + " --ranks " + ranks);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    expect_same(ranks, "one", "00000012");
  }
  const Outcome threads =
      run_lockstep("train " + tree("threads", steps + "comm.backend=threads") + " --ranks 4");
  EXPECT_EQ(threads.exit_code, 0) << threads.text;
  expect_same("threads", "one", "00000012");
  // Half by two, half by four.
  ASSERT_EQ(run_lockstep("train " +
                         tree("half",
                              "train.steps=4 checkpoint.every=4 "
                              "train.validate_every=6 schedule.decay_steps=12") +
                         " --ranks 2")
                .exit_code,
            0);
  ASSERT_EQ(
      run_lockstep("train " + (folder / "half").string() + " train.steps=12 --ranks 4").exit_code,
      0);
  EXPECT_EQ(states("half", "00000012"), states("one", "00000012"));
}

// The CPUs of a rank decide its workspaces.
TEST_F(TrainRanks, AllocateWhatPlanPrintsForTheirNumber) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string arguments =
        settings("run" + ranks, "train.threads=0 model.vocabulary=256 train.steps=1 --ranks ") +
        ranks;
    const Outcome plan = run_lockstep("plan --json " + arguments);
    ASSERT_EQ(plan.exit_code, 0) << plan.text;
    const Outcome run = run_lockstep("train " + arguments);
    ASSERT_EQ(run.exit_code, 0) << run.text;
    const auto facts = nlohmann::json::parse(text_of(folder / ("run" + ranks) / "facts.json"));
    EXPECT_EQ(nlohmann::json::parse(plan.text).at("bytes"), facts.at("memory_bytes")) << ranks;
  }
}

TEST_F(TrainRanks, FinishTheirStepAndSaveWhenAskedToStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string dir = std::to_string(signal);
    const pid_t launcher = start(settings(dir, "train.steps=100000 --ranks 3"));
    wait_for_step(dir, "\"step\":5,");
    ::kill(launcher, signal);
    const int status = wait_for(launcher);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
    EXPECT_FALSE(fs::is_empty(folder / dir / "checkpoints"));
    expect_nobody_left(dir);
  }
}

TEST_F(TrainRanks, ThatAreKilledAreNamedAndTheNextStartGoesOn) {
  const std::string steps = "train.steps=120 checkpoint.every=20 ";
  ASSERT_EQ(run_lockstep("train " + tree("whole", steps)).exit_code, 0);
  for (const std::string rank : {"1", "0"}) {
    const pid_t launcher = start(tree(rank, steps + "--ranks 2 --max-restarts 0"));
    wait_for_step(rank, "\"step\":41,");  // the save of 40 has waited for that of 20
    const auto found = ranks(rank, rank);
    ASSERT_EQ(found.size(), 1u);
    ::kill(found.front(), SIGKILL);
    const int status = wait_for(launcher);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
    EXPECT_THAT(text_of(folder / "log.txt"), HasSubstr("rank " + rank));
    expect_nobody_left(rank);
    const Outcome outcome = run_lockstep("train " + tree(rank, steps) + " --ranks 4");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("continues after step"));
    expect_same(rank, "whole", "00000120");
  }
}

TEST_F(TrainRanks, LeaveNothingBehindWhenTheirLauncherIsKilled) {
  const pid_t launcher =
      start(settings("killed", "train.steps=100000 checkpoint.every=2 --ranks 2"));
  wait_for_step("killed", "\"step\":5,");  // the save of 4 has waited for that of 2
  ::kill(launcher, SIGKILL);
  wait_for(launcher);
  expect_nobody_left("killed");
  const Outcome outcome =
      run_lockstep("train " + (folder / "killed").string() + " train.steps=300 --ranks 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("continues after step"));
}

// Every rank started by hand, with the variables of another launcher; all must end well, as two
// workers of one run.
TEST_F(TrainRanks, AreFoundByTheVariablesOfOtherLaunchers) {
  const std::string steps = "train.steps=6 ";
  const std::string lockstep = in_build("lockstep") + " train ";
  ASSERT_EQ(run_lockstep("train " + tree("one", steps)).exit_code, 0);
  const auto both = [&](const std::string& dir, const auto& variables) {
    std::string script;
    for (int rank = 0; rank < 2; ++rank) {
      script += fmt::format("{} {} {}{} > {}/log{} 2>&1 & rank{}=$!; ", kToken, variables(rank),
                            lockstep, tree(dir, steps), folder.string(), rank, rank);
    }
    const Outcome outcome =
        shell("timeout 60 sh -c '" + script + "wait $rank0; echo $?; wait $rank1; echo $?'");
    EXPECT_EQ(outcome.text, "0\n0\n") << dir;
    EXPECT_THAT(text_of(folder / "log0"), HasSubstr("2 workers")) << dir;
    expect_same(dir, "one", "00000006");
    if (HasFailure()) ADD_FAILURE() << text_of(folder / "log0") << text_of(folder / "log1");
  };
  both("torchrun", [](int rank) {
    return fmt::format(
        "RANK={0} WORLD_SIZE=2 LOCAL_RANK={0} LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={1}",
        rank, 20000 + ::getpid() % 10000);
  });
  both("slurm", [](int rank) {
    return fmt::format(
        "SLURM_PROCID={0} SLURM_NTASKS=2 SLURM_LOCALID={0} SLURM_NTASKS_PER_NODE=2 SLURM_NNODES=1 "
        "SLURM_NODEID=0 SLURM_JOB_ID={1} SLURM_STEP_ID=0",
        rank, ::getpid());
  });
  if (shell("command -v mpirun").exit_code != 0) return;
  const Outcome mpi =
      shell(fmt::format("{} timeout 60 mpirun --allow-run-as-root --oversubscribe -n 2 {}{} 2>&1",
                        kToken, lockstep, tree("mpirun", steps)));
  EXPECT_EQ(mpi.exit_code, 0) << mpi.text;
  EXPECT_THAT(mpi.text, HasSubstr("2 workers"));
  expect_same("mpirun", "one", "00000006");
}

class TrainServers : public TrainRanks {
 protected:
  static constexpr const char* kServers = "parallel.strategy=parameter_server ";
};

TEST_F(TrainServers, GiveTheBitsOfOneWorker) {
  const std::string steps = "train.steps=8 checkpoint.every=4 train.validate_every=4 ";
  ASSERT_EQ(run_lockstep("train " + tree("one", steps)).exit_code, 0);
  for (const std::string place : {"colocated", "dedicated"}) {
    const Outcome outcome = run_lockstep("train " +
                                         tree(place, steps + kServers + "parallel.servers=2 " +
                                                         "parallel.server_placement=" + place) +
                                         " --ranks 2");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    expect_same(place, "one", "00000008");
  }
}

// Those who are left validate, save and end without the one that is not.
TEST_F(TrainServers, GoOnWithoutAWorkerThatIsKilledWhereWorkersDoNotWait) {
  const std::string run =
      settings("asp", std::string(kServers) +
                          "parallel.consistency=asp debug.slow_rank=2 debug.slow_factor=2 "
                          "train.global_batch_size=6 train.validate_every=100 checkpoint.every=100 "
                          "train.trace=true ");
  const pid_t launcher = start(run + "train.steps=600 --ranks 3");
  wait_for_step("asp", "\"step\":2");
  const auto found = ranks("asp", "2");
  ASSERT_EQ(found.size(), 1u);
  ::kill(found.front(), SIGKILL);
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text_of(folder / "log.txt");
  EXPECT_THAT(text_of(folder / "log.txt"),
              AllOf(HasSubstr("rank 2 did not send its trace in time: the trace is without it"),
                    HasSubstr("finished at step 600")));
  EXPECT_THAT(
      text_of(folder / "asp" / "trace.json"),
      AllOf(HasSubstr("\"rank 0\""), HasSubstr("\"rank 1\""), Not(HasSubstr("\"rank 2\""))));
  expect_nobody_left("asp");
  // The leader reports some of the steps: each that is past another hundred has a validation.
  std::int64_t before = 600;
  std::string last;
  std::ifstream metrics(folder / "asp" / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line); last = line) {
    ASSERT_TRUE(line.starts_with("{\"step\":")) << line;
    const std::int64_t step = std::stoll(line.substr(8));
    const bool is_due = step / 100 > std::min(before, step - 1) / 100;
    EXPECT_EQ(line.find("\"val_loss\":") != std::string::npos, is_due) << line;
    before = step;
  }
  EXPECT_THAT(last, AllOf(HasSubstr("\"step\":600,"), HasSubstr("\"val_loss\":")));
  EXPECT_FALSE(states("asp", "00000600").empty());
  const Outcome outcome = run_lockstep("train " + run + "train.steps=603 --ranks 3");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("continues after step 600"));
}

TEST_F(TrainServers, ThatDoNotWaitTraceAllOfThemWhenAskedToStop) {
  const pid_t launcher = start(settings(
      "asked", std::string(kServers) +
                   "parallel.consistency=asp debug.slow_rank=2 debug.slow_factor=3 "
                   "train.trace=true train.global_batch_size=6 train.steps=100000 --ranks 3"));
  wait_for_step("asked", "\"step\":5");
  ::kill(launcher, SIGINT);
  const int status = wait_for(launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
  const std::string trace = text_of(folder / "asked" / "trace.json");
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) EXPECT_THAT(trace, HasSubstr(rank));
  EXPECT_FALSE(fs::is_empty(folder / "asked" / "checkpoints"));
  expect_nobody_left("asked");
}

// The leader is slow: others do the last shares, while it saves after its own last one.
TEST_F(TrainServers, ThatDoNotWaitSaveTheLastStep) {
  for (const std::string consistency : {"asp", "ssp"}) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      const std::string dir = fmt::format("{}{}", consistency, attempt);
      const Outcome outcome = run_lockstep(
          "train " +
          settings(
              dir,
              kServers + ("parallel.consistency=" + consistency) +
                  " debug.slow_rank=0 debug.slow_factor=6 train.global_batch_size=6 train.steps=20 "
                  "checkpoint.every=1 comm.backend=threads --ranks 3"));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
      EXPECT_FALSE(states(dir, "00000020").empty());
    }
  }
}

// Nor does the server beside worker 0 stay for it.
TEST_F(TrainServers, DoNotWaitForeverForAWorkerThatHangsWhenAskedToStop) {
  const pid_t launcher =
      start(settings("hangs", std::string(kServers) +
                                  "parallel.consistency=asp comm.timeout=1s train.trace=true " +
                                  "train.global_batch_size=6 train.steps=100000 --ranks 3"));
  wait_for_step("hangs", "\"step\":5");
  const auto leader = ranks("hangs", "0");
  const auto hangs = ranks("hangs", "2");
  ASSERT_EQ(leader.size(), 1u);
  ASSERT_EQ(hangs.size(), 1u);
  ::kill(hangs.front(), SIGSTOP);
  ::kill(leader.front(), SIGINT);
  const int status = wait_for(launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
  EXPECT_THAT(text_of(folder / "log.txt"), HasSubstr("rank 2 did not send its trace in time"));
  EXPECT_THAT(text_of(folder / "hangs" / "trace.json"), HasSubstr("\"rank 1\""));
  expect_nobody_left("hangs");
}

TEST_F(TrainServers, ThatAreKilledEndTheRunAndTheNextStartGoesOn) {
  const std::string run = settings(
      "killed", std::string(kServers) + "parallel.server_placement=dedicated checkpoint.every=5 ");
  const pid_t launcher = start(run + "train.steps=100000 --ranks 2 --max-restarts 0");
  wait_for_step("killed", "\"step\":12,");
  const auto found = ranks("killed", "2");
  ASSERT_EQ(found.size(), 1u);
  ::kill(found.front(), SIGKILL);
  const int status = wait_for(launcher);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
  expect_nobody_left("killed");
  const Outcome outcome = run_lockstep("train " + run + "train.steps=12 --ranks 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("continues after step"));
}

TEST_F(TrainRanks, WithOtherSettingsAreNamedAndRefused) {
  const std::string where =
      fmt::format("{} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={} timeout 60 {} train ",
                  kToken, 20000 + ::getpid() % 10000, in_build("lockstep"));
  const Outcome outcome =
      shell(fmt::format("RANK=0 {0}{1} > {2}/log0 2>&1 & RANK=1 {0}{1} optimizer.learning_rate=0.5 "
                        "train.seed=9 2>&1; r=$?; "
                        "wait; exit $r",
                        where, settings("mismatch"), folder.string()));
  EXPECT_EQ(outcome.exit_code, 1);
  for (const std::string& text : {outcome.text, text_of(folder / "log0")}) {
    EXPECT_THAT(text,
                AllOf(HasSubstr("different settings"), HasSubstr("optimizer.learning_rate = "),
                      HasSubstr("train.seed = 1 at rank 0, but 9 at rank 1")));
  }
  EXPECT_FALSE(fs::exists(folder / "mismatch"));
}

// What the leader alone finds is said by it, and not as a rank that went away by the others.
TEST_F(TrainRanks, HearWhatTheLeaderCannotBeginWith) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome outcome = run_lockstep("train " + arguments + " --ranks 3");
    EXPECT_NE(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, Not(HasSubstr("has closed its communicator"))) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(" ended with the same error")) << arguments;
    return outcome.text;
  };
  const auto times = [](const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  std::ofstream(folder / "file") << "no folder";
  EXPECT_EQ(times(refusal(settings("file", "train.steps=2")), "cannot make the run's folder"), 1);
  for (const char* servers :
       {"", "parallel.strategy=parameter_server parallel.server_placement=dedicated",
        "parallel.strategy=parameter_server parallel.consistency=asp"}) {
    const std::string none = settings("none", std::string("data.text=/no/such ") + servers);
    EXPECT_EQ(times(refusal(none), "data.text = /no/such: there is nothing of that name"), 1)
        << servers;
  }
  EXPECT_EQ(times(refusal(settings("none", "data.tokenizer=none.json")), "unknown tokenizer"), 1);
  // That all of them find by themselves; more than addresses reach, so that no kernel promises it.
  const std::string large = settings("large", "train.seq_len=100000000 model.hidden=32768");
  EXPECT_EQ(times(refusal(large), "not enough memory for"), 1);

  const std::string run = settings("run", "train.steps=2 checkpoint.every=1");
  ASSERT_EQ(run_lockstep("train " + run + " --ranks 2").exit_code, 0);
  EXPECT_THAT(refusal(run + " run.resume=false"), HasSubstr("run.resume = false"));
  for (const char* step : {"step-00000001", "step-00000002"}) {
    fs::resize_file(folder / "run" / "checkpoints" / step / "states.safetensors", 100);
  }
  EXPECT_THAT(refusal(run + " train.steps=3"), HasSubstr("every checkpoint is damaged"));
}

TEST_F(TrainRanks, ThatCannotShareAStepAreRefused) {
  EXPECT_THAT(run_lockstep("train " + settings("many") + " --ranks 5").text,
              AllOf(HasSubstr("train.global_batch_size = 4"), HasSubstr("5 ranks")));
  EXPECT_THAT(run_lockstep("train " + settings("none") + " --ranks 0").text, HasSubstr("--ranks"));
}

TEST_F(TrainRanks, WithSettingsThatCannotBeAreRefusedBeforeAnythingIsWritten) {
  const auto refusal = [&](const std::string& more) {
    const Outcome outcome = run_lockstep("train " + settings("refused", more) + " --ranks 2");
    EXPECT_NE(outcome.exit_code, 0) << outcome.text;
    EXPECT_FALSE(fs::exists(folder / "refused")) << more;
    return outcome.text;
  };
  EXPECT_THAT(refusal("parallel.algorithm=banana"), AllOf(HasSubstr("banana"), HasSubstr("ring")));
  EXPECT_THAT(refusal("parallel.algorithm=ring parallel.reduction=tree"),
              HasSubstr("parallel.algorithm = \"ring\""));
  EXPECT_THAT(refusal("comm.emulate=fast"), HasSubstr("fast"));
  EXPECT_THAT(refusal("debug.slow_rank=9"), HasSubstr("ranks 0 to 1"));
  for (const std::string choice : {"", " memory.auto=true", " train.recompute=auto"}) {
    const std::string said = refusal("model.vocabulary=256 memory.limit=20KiB" + choice);
    EXPECT_THAT(said, AllOf(HasSubstr("over memory.limit = 20 KiB"), HasSubstr("the least is")));
    EXPECT_EQ(said.find("this run needs"), said.rfind("this run needs")) << "it is said once";
  }
}

}  // namespace
}  // namespace lockstep
