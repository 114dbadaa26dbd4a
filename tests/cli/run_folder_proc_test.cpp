// What `lockstep train` leaves in a run's folder, and that the folder is all a run needs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/cli/train_command.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::shell;
using ::testing::SizeIs;
namespace fs = std::filesystem;

class RunFolderCommand : public testing::TrainCommand {
 protected:
  // Every file with its content and when it was written.
  std::map<std::string, std::string> files_of(const fs::path& path) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      const auto written = entry.last_write_time().time_since_epoch().count();
      files[entry.path().string()] =
          entry.is_regular_file() ? fmt::format("{} {}", written, text_of(entry.path())) : "";
    }
    return files;
  }

  // In another folder than the test's.
  Outcome run_in(const fs::path& where, const std::string& arguments) const {
    return shell(
        fmt::format("cd {} && {} {} 2>&1", where.string(), in_build("lockstep"), arguments));
  }
};

TEST_F(RunFolderCommand, IsUnchangedByACommandThatIsRefusedOrHasNothingToDo) {
  const std::string more = "sample.every=2 sample.tokens=4 checkpoint.every=2 ";
  const fs::path run = folder / "run";
  ASSERT_EQ(run_lockstep("train " + settings("run", more + "train.steps=8")).exit_code, 0);
  std::ofstream(folder / "other.txt") << text_of(folder / "text.txt") << "and more\n";
  const auto before = files_of(run);
  const struct {
    std::string settings;
    int exit_code;
    std::string says;
  } cases[] = {
      {"", 0, "there is nothing to do"},
      {"train.steps=5", 0, "train.steps = 5 are done, so there is nothing to do"},
      {"train.steps=5 train.trace=true --ranks 2", 0, "there is nothing to do"},
      {"train.steps=9 data.tokenizer=character", 2, "was started with another tokenizer"},
      {"train.steps=9 run.resume=false data.text=" + (folder / "other.txt").string(), 2,
       "run.resume = false"},
      {"train.steps=9 model.hidden=64 data.text=" + (folder / "other.txt").string(), 2,
       "model.hidden is 64, was 32"},
      {"train.steps=9 memory.limit=1Ki data.text=" + (folder / "other.txt").string(), 2,
       "memory.limit"},
      {"train.steps=9 data.text=" + (folder / "absent.txt").string(), 2,
       "there is nothing of that name"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.settings);
    const Outcome again = run_lockstep("train " + run.string() + " " + one.settings);
    EXPECT_EQ(again.exit_code, one.exit_code) << again.text;
    EXPECT_THAT(again.text, HasSubstr(one.says));
    EXPECT_EQ(files_of(run), before);
  }
  // What is accepted keeps the data that it made.
  EXPECT_EQ(run_lockstep("train " + run.string() +
                         " train.steps=9 data.text=" + (folder / "other.txt").string())
                .exit_code,
            0);
  EXPECT_NE(text_of(run / "data/training.tokens"),
            before.at((run / "data/training.tokens").string()));
  EXPECT_FALSE(fs::exists(run / "data.staged"));
  EXPECT_THAT(text_of(run / "config.toml"), HasSubstr("other.txt"));
}

TEST_F(RunFolderCommand, IsResumedFromAnyFolder) {
  fs::create_directories(folder / "elsewhere");
  std::string relative = settings("run", "train.steps=2");
  const std::string absolute = (folder / "text.txt").string();
  relative.replace(relative.find(absolute), absolute.size(), "text.txt");
  const Outcome begun = run_in(folder, "train " + relative);
  ASSERT_EQ(begun.exit_code, 0) << begun.text;
  const Outcome more =
      run_in(folder / "elsewhere", "train " + (folder / "run").string() + " train.steps=4");
  EXPECT_EQ(more.exit_code, 0) << more.text;
  EXPECT_THAT(more.text, AllOf(HasSubstr("continues after step 2"), Not(HasSubstr("changed")),
                               Not(HasSubstr("tokenised"))));
}

TEST_F(RunFolderCommand, IsResumedWithoutItsText) {
  for (const std::string ranks : {"", " --ranks 2"}) {
    fs::copy_file(folder / "text.txt", folder / "moved.txt", fs::copy_options::overwrite_existing);
    fs::remove_all(folder / "run");
    std::string own = settings("run", "train.steps=2 data.tokenizer=character" + ranks);
    const std::string text = (folder / "text.txt").string();
    own.replace(own.find(text), text.size(), (folder / "moved.txt").string());
    ASSERT_EQ(run_lockstep("train " + own).exit_code, 0);
    fs::remove(folder / "moved.txt");
    const Outcome more =
        run_lockstep("train " + (folder / "run").string() + " train.steps=4" + ranks);
    EXPECT_EQ(more.exit_code, 0) << more.text;
    EXPECT_THAT(more.text,
                AllOf(HasSubstr("continues after step 2"),
                      HasSubstr("there is no text at " + (folder / "moved.txt").string()),
                      Not(HasSubstr("data changed"))));
    EXPECT_THAT(losses("run"), SizeIs(4));
  }
}

TEST_F(RunFolderCommand, PathsOfAConfigurationAreLookedForBesideIt) {
  fs::create_directories(folder / "job/texts");
  fs::create_directories(folder / "elsewhere");
  fs::copy(folder / "text.txt", folder / "job/texts/beside.txt");
  std::ofstream(folder / "job/job.toml") << "[data]\ntext = \"texts/beside.txt\"\n";
  std::string rest = settings("run", "train.steps=1");
  rest.erase(0, rest.find(' '));
  const Outcome beside =
      run_in(folder / "elsewhere", "train " + (folder / "job/job.toml").string() + rest);
  EXPECT_EQ(beside.exit_code, 0) << beside.text;
  EXPECT_THAT(beside.text, HasSubstr("beside.txt: "));
  // In the current folder, where it is not beside.
  std::ofstream(folder / "job/job.toml") << "[data]\ntext = \"text.txt\"\n";
  const Outcome here =
      run_in(folder, "train " + (folder / "job/job.toml").string() + rest + " run.dir=second");
  EXPECT_EQ(here.exit_code, 0) << here.text;
  EXPECT_TRUE(fs::exists(folder / "second/config.toml")) << "run.dir is of the current folder";
  std::ofstream(folder / "job/job.toml") << "[data]\ntext = \"absent.txt\"\n";
  const Outcome absent = run_in(folder, "train " + (folder / "job/job.toml").string() + rest);
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.text, AllOf(HasSubstr("data.text = absent.txt: there is nothing of that name"),
                                 HasSubstr("Give data.text=PATH")));
}

TEST_F(RunFolderCommand, OfAnotherModelIsRefusedByItsKeys) {
  ASSERT_EQ(run_lockstep("train " + settings("run", "train.steps=1")).exit_code, 0);
  for (const std::string ranks : {"", " --ranks 2", " --ranks 2 parallel.zero=2"}) {
    const Outcome other =
        run_lockstep("train " + settings("run", "train.steps=2 model.layers=3") + ranks);
    EXPECT_EQ(other.exit_code, 2) << other.text;
    EXPECT_THAT(other.text, HasSubstr("has another model: model.layers is 3, was 2. "));
  }
}

TEST_F(RunFolderCommand, IsInspectedBeforeItsFirstCheckpoint) {
  const pid_t child = start(settings("run", "train.steps=1000000 checkpoint.every=0"));
  wait_for_step("run", "\"step\":3");
  const Outcome during = run_lockstep("inspect " + (folder / "run").string());
  ::kill(child, SIGKILL);
  wait_for(child);
  EXPECT_EQ(during.exit_code, 0) << during.text;
  EXPECT_THAT(during.text, AllOf(HasSubstr("has saved no checkpoint yet"), HasSubstr("steps done"),
                                 HasSubstr("gpt2")));
  EXPECT_EQ(run_lockstep("inspect " + (folder / "run").string()).exit_code, 0);
}

TEST_F(RunFolderCommand, HasAReportWhileTheRunGoesOnAndAfterItIsKilled) {
  const pid_t child = start(settings("run", "train.steps=1000000 checkpoint.every=0"));
  wait_for_step("run", "\"step\":3");
  EXPECT_THAT(text_of(folder / "run/report.html"),
              AllOf(HasSubstr("\"state\":\"running\""), HasSubstr("</html>")));
  ::kill(child, SIGKILL);
  wait_for(child);
  EXPECT_THAT(text_of(folder / "run/report.html"), HasSubstr("\"state\":\"running\""));
}

TEST_F(RunFolderCommand, ARunThatFailsBeforeItBeginsWritesNoReportElsewhere) {
  ASSERT_EQ(run_lockstep("train " + settings("run", "train.steps=1")).exit_code, 0);
  fs::create_directories(folder / "elsewhere");
  std::ofstream(folder / "elsewhere/report.html") << "mine";
  fs::remove(folder / "run/metrics.jsonl");
  fs::create_directory(folder / "run/metrics.jsonl");  // cannot be written to
  const Outcome failed = run_in(folder / "elsewhere", "train " + settings("run", "train.steps=2"));
  EXPECT_NE(failed.exit_code, 0);
  EXPECT_THAT(failed.text, HasSubstr("metrics.jsonl"));
  EXPECT_EQ(text_of(folder / "elsewhere/report.html"), "mine");
}

TEST_F(RunFolderCommand, ExamplesWithDataOfTheirOwnRunFromAnyFolder) {
  for (const std::string name : {"demo", "translation", "house-price"}) {
    SCOPED_TRACE(name);
    const Outcome run =
        run_in(folder, fmt::format("train {} run.dir={} train.steps=1 schedule.warmup_steps=0 "
                                   "train.validate_batches=1 sample.every=0",
                                   in_sources("examples/" + name + ".toml"), name));
    EXPECT_EQ(run.exit_code, 0) << run.text;
  }
  const Outcome absent =
      run_in(folder, "train " + in_sources("examples/shakespeare-char.toml") + " run.dir=absent");
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.text, HasSubstr("data.text = tinyshakespeare.txt: there is nothing of that"));
}

TEST_F(RunFolderCommand, AValidationIsShortByDefault) {
  std::ofstream text(folder / "held_back.txt");
  for (int i = 0; i < 60000; ++i) text << "it was the age of wisdom " << i << ", it was\n";
  text.close();
  std::string few =
      settings("run", "train.steps=2 data.validation_text=" + (folder / "held_back.txt").string());
  few.erase(few.find("train.validate_batches=1"), std::string("train.validate_batches=1").size());
  const Outcome run = run_lockstep("train " + few);
  EXPECT_EQ(run.exit_code, 0) << run.text;
  // 5 % of 2 steps of 4 sequences, of which forward is a third: 1.2 sequences.
  EXPECT_THAT(run.text, HasSubstr("a validation takes 1 of them"));
  const Outcome repeated = run_lockstep("train " + few + " run.dir=" + (folder / "b").string());
  EXPECT_EQ(repeated.exit_code, 0);
  const auto validation = [&](const char* dir) {
    const std::string metrics = text_of(folder / dir / "metrics.jsonl");
    return metrics.substr(metrics.find("val_loss"), 30);
  };
  EXPECT_EQ(validation("run"), validation("b"));
}

}  // namespace
}  // namespace lockstep
