// lockstep runs and lockstep sweep.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/train/run_folder.h"
#include "tests/cli/train_command.h"
#include "tests/launch/launched.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::shell;
namespace fs = std::filesystem;

class Runs : public testing::TrainCommand {
 protected:
  std::string path(const std::string& name) const { return (folder / name).string(); }
  json listed(const std::string& more = "") const {
    const Outcome outcome =
        shell(in_build("lockstep") + " runs " + path("all") + " --json " + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return json::parse(outcome.text);
  }
  std::map<std::string, json> by_folder() const {
    std::map<std::string, json> found;
    for (const json& one : listed()) {
      found[fs::path(one["folder"].get<std::string>()).filename()] = one;
    }
    return found;
  }
};

TEST_F(Runs, AreListedWithWhatBecameOfThem) {
  const std::string endless = "train.steps=100000000 checkpoint.every=0 ";
  ASSERT_EQ(run_lockstep("train " + settings("all/done", "train.steps=3 run.name=first")).exit_code,
            0);
  ASSERT_EQ(run_lockstep("train " + settings("all/nan",
                                             "train.steps=9 optimizer.learning_rate=1e30 "
                                             "optimizer.max_grad_norm=0"))
                .exit_code,
            3);
  const pid_t stopped = start(settings("all/deeper/stopped", endless));
  wait_for_step("all/deeper/stopped", "\"step\":2,");
  ::kill(stopped, SIGTERM);
  EXPECT_EQ(WEXITSTATUS(wait_for(stopped)), 75);
  const pid_t killed = start(settings("all/killed", endless));
  wait_for_step("all/killed", "\"step\":2,");
  ::kill(killed, SIGKILL);
  wait_for(killed);
  const pid_t running = start(settings("all/running", endless));
  wait_for_step("all/running", "\"step\":2,");
  // Broken ones, and a folder that is none.
  fs::copy(folder / "all/done", folder / "all/torn", fs::copy_options::recursive);
  write_file(folder / "all/torn/config.toml", "[model\nlay");
  fs::copy(folder / "all/done", folder / "all/garbage", fs::copy_options::recursive);
  write_file(folder / "all/garbage/facts.json", "{");
  fs::copy(folder / "all/done", folder / "all/older", fs::copy_options::recursive);
  fs::remove(folder / "all/older/facts.json");
  fs::create_directories(folder / "all/nothing");
  fs::create_directory_symlink(folder / "all", folder / "all/deeper/circle");

  const auto found = by_folder();
  ASSERT_EQ(found.size(), 8u);
  EXPECT_EQ(found.at("done")["status"], "finished");
  EXPECT_EQ(found.at("done")["name"], "first");
  EXPECT_EQ(found.at("done")["step"], 3);
  EXPECT_EQ(found.at("done")["steps"], 3);
  EXPECT_GT(found.at("done")["parameters"], 1000);
  EXPECT_GT(found.at("done")["tokens_per_s"], 0);
  EXPECT_EQ(found.at("done")["best_step"], 3);
  EXPECT_EQ(found.at("nan")["status"], "failed");
  EXPECT_THAT(found.at("nan")["problem"].get<std::string>(), HasSubstr("loss"));
  EXPECT_EQ(found.at("stopped")["status"], "stopped");
  EXPECT_EQ(found.at("killed")["status"], "killed");
  EXPECT_EQ(found.at("running")["status"], "running");
  EXPECT_EQ(found.at("torn")["status"], "broken");
  EXPECT_EQ(found.at("garbage")["status"], "broken");
  EXPECT_EQ(found.at("older")["status"], "unknown");

  // One that is resumed is running again, and the list does not disturb it.
  const pid_t resumed = start(settings("all/killed", endless));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (by_folder().at("killed")["status"] != "running") {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  for (const pid_t one : {running, resumed}) {
    ::kill(one, SIGTERM);
    EXPECT_EQ(WEXITSTATUS(wait_for(one)), 75) << text_of(folder / "log.txt");
  }
  EXPECT_EQ(by_folder().at("running")["status"], "stopped");

  const Outcome table = run_lockstep("runs " + path("all"));
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.text, AllOf(HasSubstr("deeper/stopped"), HasSubstr("first"),
                                HasSubstr("torn: "), HasSubstr("best val")));
  const auto names = [&](const std::string& more) {
    std::vector<std::string> all;
    for (const json& one : listed(more)) {
      all.push_back(fs::path(one["folder"].get<std::string>()).filename());
    }
    return all;
  };
  EXPECT_THAT(names("--filter status=finished"), ElementsAre("done"));
  EXPECT_THAT(names("--filter 'status=st*' --sort folder"),
              ElementsAre("stopped", "killed", "running"));
  EXPECT_THAT(names("--filter 'steps<10' --filter status=finished"), ElementsAre("done"));
  EXPECT_EQ(names("--sort -step").front(), names("--sort -step --filter 'step>0'").front());
  EXPECT_THAT(run_lockstep("runs " + path("all") + " --sort colour").text,
              HasSubstr("names the column 'colour'"));
  EXPECT_THAT(run_lockstep("runs " + path("missing")).text, HasSubstr("is not a folder"));
  EXPECT_THAT(run_lockstep("runs " + path("all/nothing")).text, HasSubstr("no runs below"));
  EXPECT_THAT(run_lockstep("inspect " + path("all/done")).text, HasSubstr("'first'"));
}

class Sweep : public Runs {
 protected:
  // Without its own run.dir.
  std::string points(const std::string& more) const {
    std::string all = settings("none", more);
    const std::size_t at = all.find("run.dir=");
    all.erase(at, all.find(' ', at) + 1 - at);
    return "sweep " + all + " --folder " + path("all");
  }
};

TEST_F(Sweep, TrainsEveryCombinationOnce) {
  const std::string grid = points("train.steps=2 optimizer.learning_rate=1e-3,3e-4 train.seed=1,2");
  const Outcome first = run_lockstep(grid);
  EXPECT_EQ(first.exit_code, 0) << first.text;
  EXPECT_THAT(first.text, AllOf(HasSubstr("4 runs in"), HasSubstr("[4/4]")));
  const auto found = by_folder();
  ASSERT_EQ(found.size(), 4u);
  for (const char* rate : {"1e-3", "3e-4"}) {
    for (const int seed : {1, 2}) {
      const std::string name = fmt::format("learning_rate={},seed={}", rate, seed);
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_EQ(found.at(name)["status"], "finished");
      EXPECT_EQ(found.at(name)["name"], name);
      const std::string toml = text_of(folder / "all" / name / "config.toml");
      EXPECT_THAT(toml, HasSubstr(fmt::format("seed = {}", seed)));
      EXPECT_THAT(text_of(folder / "all/logs" / (name + ".txt")), HasSubstr("finished at step 2"));
    }
  }
  // The same losses as by hand.
  ASSERT_EQ(run_lockstep("train " + settings("hand",
                                             "train.steps=2 optimizer.learning_rate=3e-4 "
                                             "train.seed=2"))
                .exit_code,
            0);
  EXPECT_EQ(losses("all/learning_rate=3e-4,seed=2"), losses("hand"));

  const Outcome again = run_lockstep(grid);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.text, AllOf(HasSubstr("4 finished before"), Not(HasSubstr("[1/4]"))));
  // With other settings they continue.
  const Outcome longer = run_lockstep(
      points("train.steps=3 optimizer.learning_rate=1e-3,3e-4 train.seed=1,2 --jobs 2"));
  EXPECT_EQ(longer.exit_code, 0) << longer.text;
  for (const auto& [name, run] : by_folder()) EXPECT_EQ(run["step"], 3) << name;
}

TEST_F(Sweep, AFailingRunDoesNotStopTheOthers) {
  const std::string grid =
      points("train.steps=9 optimizer.max_grad_norm=0 optimizer.learning_rate=1e-3,1e30,3e-4");
  const Outcome some = run_lockstep(grid);
  EXPECT_EQ(some.exit_code, 1);
  EXPECT_THAT(some.text, HasSubstr("rate=1e30: failed with exit code 3; its last lines are in"));
  const auto found = by_folder();
  EXPECT_EQ(found.at("learning_rate=1e-3")["status"], "finished");
  EXPECT_EQ(found.at("learning_rate=1e30")["status"], "failed");
  EXPECT_EQ(found.at("learning_rate=3e-4")["status"], "finished");
  // Only that one is tried again.
  EXPECT_THAT(run_lockstep(grid).text,
              AllOf(HasSubstr("2 finished before"), HasSubstr("[3/3] learning_rate=1e30")));
}

TEST_F(Sweep, ThatIsInterruptedOrKilledContinues) {
  const std::string grid = points("train.steps=100000000 checkpoint.every=50 train.seed=1,2,3");
  for (const int signal : {SIGTERM, SIGKILL}) {
    const pid_t child = start_command("exec " + in_build("lockstep") + " " + grid);
    wait_for_step("all/seed=1", "\"step\":60,");
    ::kill(child, signal);
    const int status = wait_for(child);
    if (signal == SIGTERM) {
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
      EXPECT_EQ(by_folder().at("seed=1")["status"], "stopped");
      EXPECT_FALSE(fs::exists(folder / "all/seed=2"));
    } else {
      // What it has started ends with it.
      ASSERT_TRUE(testing::eventually(
          [&] { return train::RunFolder::is_locked(folder / "all/seed=1") == false; },
          std::chrono::seconds(60)));
    }
  }
  const int steps = by_folder().at("seed=1")["step"].get<int>() + 10;
  const Outcome rest = run_lockstep(
      points(fmt::format("train.steps={} checkpoint.every=50 train.seed=1,2,3", steps)));
  EXPECT_EQ(rest.exit_code, 0) << rest.text;
  for (const auto& [name, run] : by_folder()) {
    EXPECT_EQ(run["status"], "finished") << name;
    EXPECT_EQ(run["step"], steps) << name;
  }
}

TEST_F(Sweep, RefusesWhatCannotBeBeforeAnythingStarts) {
  const auto refused = [&](const std::string& more, const std::string& why) {
    const Outcome outcome = run_lockstep(points(more));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(why));
    EXPECT_FALSE(fs::exists(folder / "all"));
  };
  refused("optimizer.leaning_rate=1,2", "did you mean optimizer.learning_rate");
  refused("train.seed=1,x", "train.seed");
  refused("train.seed=1,1", "lists the value 1 twice");
  refused("train.seed=1,,2", "lists an empty value");
  refused("train.steps=1 train.steps=2", "is given twice");
  refused("run.dir=here", "names its runs and their folders itself");
  EXPECT_THAT(run_lockstep("sweep").text, HasSubstr("needs a configuration file"));
  EXPECT_THAT(run_lockstep("sweep " + path("")).text, HasSubstr("is a folder"));
}

}  // namespace
}  // namespace lockstep
