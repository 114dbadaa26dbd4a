// `lockstep train` as a process: killed, interrupted, on a full disk, with bad input.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/tensor/cuda_driver.h"
#include "tests/cli/train_command.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::shell;
namespace fs = std::filesystem;

class TrainCommand : public testing::TrainCommand {
 protected:
  // Where a run is killed: by turns as it starts, between steps, and while it saves.
  enum class Moment { kStart, kStep, kSave };

  bool is_saving(const std::string& dir) const {
    std::error_code none;
    for (fs::directory_iterator at(folder / dir / "checkpoints", none);
         !none && at != fs::directory_iterator(); at.increment(none)) {
      if (at->path().filename().string().starts_with('.')) return true;
    }
    return false;
  }

  // Waits for the moment, `random` of the way into it, or for the end of the child.
  void wait_for_moment(pid_t child, const std::string& dir, Moment moment, double random) const {
    const auto has_ended = [child] {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid != 0;
    };
    const auto pause = [](double seconds) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    };
    if (moment == Moment::kStart) return pause(0.002 + 0.25 * random);
    const std::size_t before = losses(dir).size();
    const auto more = static_cast<std::size_t>(1 + 7 * random);
    while (losses(dir).size() < before + more && !has_ended()) pause(0.0002);
    while (moment == Moment::kSave && !is_saving(dir) && !has_ended()) pause(0);
  }

  // Kills the run `kills` times at random moments, then lets it end.
  void kill_and_resume(int kills) const {
    const std::string steps = "train.steps=200 checkpoint.every=3";
    ASSERT_EQ(run_lockstep("train " + settings("whole", steps)).exit_code, 0);
    int killed = 0;
    int killed_saving = 0;
    for (std::uint64_t i = 0; killed < kills; ++i) {
      ASSERT_LT(i, 1000u) << "it ends before it can be killed";
      const pid_t child = start(settings("killed", steps));
      wait_for_moment(child, "killed", static_cast<Moment>(i % 3),
                      static_cast<double>(uniform_at(7, 0, i)));
      ::kill(child, SIGKILL);
      if (WIFSIGNALED(wait_for(child))) {
        ++killed;
        killed_saving += is_saving("killed") ? 1 : 0;
      } else {
        fs::remove_all(folder / "killed");  // it was faster; from the start
      }
    }
    EXPECT_TRUE(killed < 12 || killed_saving > 0) << "none of " << killed << " hit a save";
    EXPECT_EQ(run_lockstep("train " + settings("killed", steps)).exit_code, 0);
    EXPECT_EQ(losses("killed"), losses("whole"));
    const fs::path states = fs::path("checkpoints") / "step-00000200" / "states.safetensors";
    EXPECT_EQ(text_of(folder / "killed" / states), text_of(folder / "whole" / states));
    EXPECT_FALSE(is_saving("killed")) << "something half written has stayed";
  }
};

// LOCKSTEP_TEST_KILLS=20 makes a longer test of it.
TEST_F(TrainCommand, KilledAtRandomMomentsGoesOnToTheSameBits) {
  const char* kills = std::getenv("LOCKSTEP_TEST_KILLS");
  kill_and_resume(kills == nullptr ? 4 : std::atoi(kills));
}

// Whether steps have gone on since the checkpoint began that is being written.
bool steps_go_on_beside_a_save(const fs::path& run, const std::string& metrics) {
  constexpr std::string_view kStaged = ".step-";
  std::error_code none;
  for (fs::directory_iterator at(run / "checkpoints", none);
       !none && at != fs::directory_iterator(); at.increment(none)) {
    const std::string name = at->path().filename();
    if (!name.starts_with(kStaged)) continue;
    const int step = std::stoi(name.substr(kStaged.size()));
    if (metrics.find(fmt::format("\"step\":{},", step + 1)) != std::string::npos) return true;
  }
  return false;
}

TEST_F(TrainCommand, KilledWhileItSavesBesideItsStepsGoesOnToTheSameBits) {
  const std::string steps =
      "model.hidden=128 train.threads=1 train.steps=24 checkpoint.every=4 checkpoint.async_save=";
  ASSERT_EQ(run_lockstep("train " + settings("whole", steps + "false")).exit_code, 0);
  EXPECT_THAT(text_of(folder / "whole/metrics.jsonl"),
              AllOf(HasSubstr("checkpoint_ms"), Not(HasSubstr("checkpoint_background_ms"))));
  bool killed = false;
  for (int i = 0; i < 50 && !killed; ++i) {
    fs::remove_all(folder / "killed");
    const pid_t child = start(settings("killed", steps + "true"));
    const fs::path run = folder / "killed";
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (!steps_go_on_beside_a_save(run, text_of(run / "metrics.jsonl"))) continue;
      ::kill(child, SIGKILL);
      status = wait_for(child);
      break;
    }
    killed = WIFSIGNALED(status);
  }
  ASSERT_TRUE(killed) << "no step was done beside a save";
  const Outcome more = run_lockstep("train " + settings("killed", steps + "true"));
  EXPECT_EQ(more.exit_code, 0) << more.text;
  EXPECT_THAT(text_of(folder / "killed/metrics.jsonl"), HasSubstr("checkpoint_background_ms"));
  EXPECT_EQ(losses("killed"), losses("whole"));
  const fs::path states = fs::path("checkpoints") / "step-00000024" / "states.safetensors";
  EXPECT_EQ(text_of(folder / "killed" / states), text_of(folder / "whole" / states));
  EXPECT_FALSE(is_saving("killed")) << "something half written has stayed";
}

TEST_F(TrainCommand, RefusedForADeviceThatIsNotThereLeavesNothing) {
  ::setenv("LOCKSTEP_CUDA_MODULE", "/no/such/module.so", 1);
  const int status = wait_for(start(settings("run", "run.device=cuda train.steps=2")));
  ::unsetenv("LOCKSTEP_CUDA_MODULE");
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_NE(text_of(folder / "log.txt").find("the CUDA module was not found"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

// It would take 100 MB in every rank.
TEST_F(TrainCommand, LoadsNoCudaModuleWhereThereIsNoDriver) {
  if (has_cuda_driver()) GTEST_SKIP() << "this machine has NVIDIA's driver";
  const pid_t child = start(settings("run", "train.steps=1000000 run.device=auto"));
  wait_for_step("run", "\"step\":3");
  const std::string maps = text_of(fmt::format("/proc/{}/maps", child));
  ::kill(child, SIGINT);
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 75);
  EXPECT_NE(maps.find("lockstep"), std::string::npos) << maps;
  EXPECT_EQ(maps.find("liblockstep_cuda"), std::string::npos) << maps;
}

TEST_F(TrainCommand, FinishesItsStepAndSavesWhenAskedToStop) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const std::string dir = "stopped" + std::to_string(signal);
    const pid_t child = start(settings(dir, "train.steps=1000000"));
    wait_for_step(dir, "\"step\":3");
    ::kill(child, signal);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 75);
    EXPECT_FALSE(fs::is_empty(folder / dir / "checkpoints"));
  }
}

TEST_F(TrainCommand, SavesWhenNobodyReadsItsOutputAnyMore) {
  const std::string run = in_build("lockstep") + " train " +
                          settings("unread", "train.steps=1000000 train.log_every=1");
  EXPECT_EQ(
      shell("bash -c '" + run + " 2>&1 >/dev/null | head -n 9 >/dev/null; exit ${PIPESTATUS[0]}'")
          .exit_code,
      75);
  EXPECT_FALSE(fs::is_empty(folder / "unread" / "checkpoints"));
  EXPECT_THAT(text_of(folder / "unread" / "report.html"), HasSubstr("interrupted"));
}

TEST_F(TrainCommand, OutlivesItsTerminalWithNohup) {
  ::signal(SIGHUP, SIG_IGN);  // as nohup starts it
  const pid_t child = start(settings("kept", "train.steps=1000000"));
  ::signal(SIGHUP, SIG_DFL);
  wait_for_step("kept", "\"step\":3");
  ::kill(child, SIGHUP);
  wait_for_step("kept", fmt::format("\"step\":{}", losses("kept").size() + 3).c_str());
  ::kill(child, SIGTERM);
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 75);
}

TEST_F(TrainCommand, WritesAllThatARunLeavesBehind) {
  const Outcome run = run_lockstep("train " + settings("run", "train.steps=3 sample.every=3"));
  EXPECT_EQ(run.exit_code, 0) << run.text;
  for (const char* name : {"config.toml", "metrics.jsonl", "report.html", "tensorboard"}) {
    EXPECT_TRUE(fs::exists(folder / "run" / name)) << name;
  }
  // The folder is enough to resume.
  const Outcome more = run_lockstep("train " + (folder / "run").string() + " train.steps=5");
  EXPECT_EQ(more.exit_code, 0) << more.text;
  EXPECT_EQ(losses("run").size(), 5u);
}

TEST_F(TrainCommand, AFolderThatIsMadeLongerDeclinesForLonger) {
  const std::string decay =
      "schedule.decay=linear schedule.min_lr_ratio=0 schedule.warmup_steps=2 ";
  const auto train = [&](const std::string& arguments) {
    const Outcome run = run_lockstep("train " + arguments);
    EXPECT_EQ(run.exit_code, 0) << run.text;
    return run.text;
  };
  for (const char* dir : {"folder", "settings"}) train(settings(dir, decay + "train.steps=4"));
  EXPECT_THAT(train((folder / "folder").string() + " train.steps=10"),
              HasSubstr("schedule.decay_steps = 10 (was 4)"));
  train(settings("settings", decay + "train.steps=10"));
  EXPECT_EQ(losses("folder"), losses("settings"));
  // One that was said stays.
  train((folder / "folder").string() + " train.steps=11 schedule.decay_steps=12");
  EXPECT_THAT(train((folder / "folder").string() + " train.steps=13"),
              Not(HasSubstr("schedule.decay_steps")));
}

TEST_F(TrainCommand, StepsOfTheArgumentsReplaceEpochsOfTheFile) {
  std::ofstream(folder / "run.toml") << "[train]\nepochs = 2\n";
  const std::string file = (folder / "run.toml").string() + " ";
  const Outcome run = run_lockstep("train " + file + settings("run", "train.steps=3"));
  EXPECT_EQ(run.exit_code, 0) << run.text;
  EXPECT_EQ(losses("run").size(), 3u);
}

TEST_F(TrainCommand, GoesOnWhenTheDiskIsFullAndSaysSo) {
  const fs::path small = folder / "small";
  fs::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=700k") != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  // The first checkpoint fits, a second beside it does not.
  const Outcome run =
      run_lockstep("train " + settings("small/run", "train.steps=6 checkpoint.every=2"));
  const bool kept = fs::exists(small / "run" / "checkpoints" / "step-00000002" / "manifest.json");
  EXPECT_THAT(run.text, AllOf(HasSubstr("the checkpoint of step 4 could not be saved"),
                              HasSubstr("step 6/6")));
  EXPECT_TRUE(kept) << run.text;
  EXPECT_EQ(run.exit_code, 1) << "the last state is lost";
  EXPECT_THAT(run.text, HasSubstr("it continues after step 2"));
  EXPECT_EQ(::umount2(small.c_str(), MNT_DETACH), 0);
}

TEST_F(TrainCommand, SaysWhatIsWrong) {
  const auto refusal = [&](const std::string& arguments) {
    const Outcome run = run_lockstep("train " + arguments);
    EXPECT_NE(run.exit_code, 0) << arguments;
    EXPECT_LT(run.exit_code, 100) << run.text;
    return run.text;
  };
  EXPECT_THAT(refusal(""), HasSubstr("configuration"));
  EXPECT_THAT(refusal(settings("a", "train.setps=3")), HasSubstr("did you mean train.steps?"));
  EXPECT_THAT(refusal(settings("a", "train.steps=many")), HasSubstr("an integer"));
  EXPECT_THAT(refusal(settings("a", "data.text=/nowhere.txt")), HasSubstr("/nowhere.txt"));
  std::ofstream(folder / "empty.txt");
  EXPECT_THAT(refusal(settings("a", "data.text=" + (folder / "empty.txt").string())),
              HasSubstr("empty.txt"));
  EXPECT_THAT(refusal(settings("a", "model.vocabulary=17")), HasSubstr("17"));
  EXPECT_THAT(refusal("/nowhere.toml"), HasSubstr("/nowhere.toml"));
  EXPECT_THAT(refusal(settings("/proc/lockstep")), HasSubstr("/proc/lockstep"));
  EXPECT_THAT(refusal(settings("a", "memory.limit=1KiB")), HasSubstr("over memory.limit"));
  EXPECT_THAT(refusal(settings("a", "model.layers=1000000")), HasSubstr("from 0 to 10000"));
  EXPECT_THAT(refusal(settings("a", "comm.algorithm.all_reduce=rng")),
              HasSubstr("did you mean ring?"));
  for (const char* family : {"linear", "encoder-decoder"}) {
    const std::string text = refusal(settings("a", std::string("model.family=") + family));
    EXPECT_THAT(text, HasSubstr("has none. Give data."));
    EXPECT_THAT(text, Not(HasSubstr("tokenized")));
  }
}

TEST_F(TrainCommand, SaysWhereAConfigurationIsThatWasTorn) {
  ASSERT_EQ(run_lockstep("train " + settings("run", "train.steps=1")).exit_code, 0);
  const fs::path config = folder / "run" / "config.toml";
  fs::resize_file(config, fs::file_size(config) / 2);
  std::ofstream(config, std::ios::app) << "\n[torn";
  const Outcome torn = run_lockstep("train " + (folder / "run").string());
  EXPECT_EQ(torn.exit_code, 2);
  EXPECT_THAT(torn.text, AllOf(HasSubstr("config.toml:"),
                               HasSubstr("every checkpoint keeps the configuration")));
  fs::copy_file(folder / "run/checkpoints/step-00000001/config.toml", config,
                fs::copy_options::overwrite_existing);
  const Outcome mended = run_lockstep("train " + (folder / "run").string() + " train.steps=2");
  EXPECT_EQ(mended.exit_code, 0) << mended.text;
}

TEST_F(TrainCommand, DataOfTheArgumentsReplacesThatOfTheFile) {
  std::ofstream(folder / "run.toml") << "[data]\ntokens = \"/nowhere.bin\"\n";
  const Outcome run = run_lockstep("train " + (folder / "run.toml").string() + " " +
                                   settings("run", "train.steps=1"));
  EXPECT_EQ(run.exit_code, 0) << run.text;
}

TEST_F(TrainCommand, SaysThatItIsFinishingItsStep) {
  const pid_t child = start(settings("told", "train.steps=1000000"));
  wait_for_step("told", "\"step\":3");
  ::kill(child, SIGINT);
  EXPECT_EQ(WEXITSTATUS(wait_for(child)), 75);
  EXPECT_THAT(text_of(folder / "log.txt"),
              AllOf(HasSubstr("finishing the step, then saving"), HasSubstr("saved after step")));
}

TEST_F(TrainCommand, TakesTheDataOfItsArgumentsInPlaceOfTheFiles) {
  std::ofstream(folder / "job.toml") << "[data]\ntext = '/nowhere.txt'\n"
                                        "validation_text = '/nowhere_either.txt'\n"
                                        "[model]\nlayers = 1\nhidden = 8\nheads = 2\n"
                                        "[train]\nsteps = 2\nseq = 8\nbatch = 2\n";
  const std::string job = "train " + (folder / "job.toml").string() + " ";
  const Outcome tokens = run_lockstep(job + "data.tokens=/no_tokens.bin");
  EXPECT_THAT(tokens.text, HasSubstr("/no_tokens.bin"));
  const Outcome alias = run_lockstep(job + "train_file=/no_text.txt data.tokens=");
  EXPECT_THAT(alias.text, HasSubstr("/no_text.txt"));
}

TEST_F(TrainCommand, ExplainsEveryKey) {
  const Outcome help = run_lockstep("train --help-config");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.text, AllOf(HasSubstr("run.dir = \"run\"  (string)"), HasSubstr("data.text"),
                               HasSubstr("checkpoint.keep_last")));
}

}  // namespace
}  // namespace lockstep
