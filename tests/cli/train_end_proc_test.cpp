// How `lockstep train` ends where a signal arrives during the work after a step, and where its loss
// is NaN.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/train_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
namespace fs = std::filesystem;

class TrainEnd : public testing::TrainRanks {
 protected:
  TrainEnd() {
    // A validation of all of it takes many seconds.
    std::ofstream text(folder / "held_back.txt");
    for (int i = 0; i < 60000; ++i) text << "it was the age of wisdom " << i << ", it was\n";
  }

  std::string validated(const std::string& dir, const std::string& more) const {
    return settings(dir,
                    "data.validation_text=" + (folder / "held_back.txt").string() + " " + more);
  }

  // The validation losses by step, as the lines have them.
  std::vector<std::string> validations(const std::string& dir) const {
    std::vector<std::string> found;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const std::size_t at = line.find("\"val_loss\"");
      const std::size_t end = line.find(',', at);
      found.push_back(at == std::string::npos ? "none" : line.substr(at, end - at));
    }
    return found;
  }

  // Asked to end in the validation behind the step after `step`.
  void cut_in_validation(const std::string& arguments, const std::string& dir, int step) {
    fs::remove(folder / "log.txt");
    ::setenv("LOCKSTEP_LOG", "debug", 1);
    const pid_t child = start(arguments);
    ::unsetenv("LOCKSTEP_LOG");
    const std::string begins = fmt::format("validates after step {}\n", step + 1);
    ASSERT_TRUE(testing::eventually(
        [&] { return text_of(folder / "log.txt").find(begins) != std::string::npos; },
        std::chrono::seconds(60)))
        << text_of(folder / "log.txt");
    ::kill(child, SIGTERM);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
    EXPECT_EQ(losses(dir).size(), static_cast<std::size_t>(step) + 1);
    EXPECT_EQ(validations(dir).back(), "none");
    EXPECT_THAT(text_of(folder / "log.txt"), Not(HasSubstr("finished")));
    EXPECT_TRUE(fs::exists(folder / dir / "checkpoints" / fmt::format("step-{:08}", step + 1)));
  }
};

TEST_F(TrainEnd, InAValidationTakesItWithTheNextStart) {
  int number = 0;
  for (const std::string kind : {"", "--ranks 2", "parallel.zero=3 --ranks 3"}) {
    SCOPED_TRACE(kind);
    const std::string whole = fmt::format("whole{}", number);
    const std::string parts = fmt::format("parts{}", number++);
    const std::string middle =
        "train.steps=5 train.validate_every=2 schedule.decay_steps=5 " + kind;
    const std::string few = " train.validate_batches=3";
    ASSERT_EQ(run_lockstep("train " + validated(whole, middle + few)).exit_code, 0);
    cut_in_validation(validated(parts, middle + " train.validate_batches=0"), parts, 1);
    const Outcome more = run_lockstep("train " + validated(parts, middle + few));
    EXPECT_EQ(more.exit_code, 0) << more.text;
    EXPECT_THAT(more.text, HasSubstr("whose validation is still missing"));
    EXPECT_EQ(losses(parts), losses(whole));
    EXPECT_EQ(validations(parts), validations(whole));
  }
}

TEST_F(TrainEnd, InTheLastValidationHasNotFinished) {
  int number = 0;
  for (const std::string kind : {"", "--ranks 2"}) {
    SCOPED_TRACE(kind);
    const std::string whole = fmt::format("whole{}", number);
    const std::string parts = fmt::format("parts{}", number++);
    const std::string steps = "train.steps=3 " + kind;
    const std::string few = " train.validate_batches=3";
    ASSERT_EQ(run_lockstep("train " + validated(whole, steps + few)).exit_code, 0);
    cut_in_validation(validated(parts, steps + " train.validate_batches=0"), parts, 2);
    const Outcome more = run_lockstep("train " + validated(parts, steps + few));
    EXPECT_EQ(more.exit_code, 0) << more.text;
    EXPECT_EQ(losses(parts), losses(whole));
    EXPECT_EQ(validations(parts), validations(whole));
    EXPECT_THAT(run_lockstep("train " + validated(parts, steps + few)).text,
                HasSubstr("there is nothing to do"));
    EXPECT_EQ(validations(parts), validations(whole));
  }
}

// Its checkpoint does not wait for a sample that never ends.
TEST_F(TrainEnd, InTheLastSampleHasSavedAndMakesItWithTheNextStart) {
  int number = 0;
  for (const std::string kind : {"", "--ranks 2", "parallel.zero=3 --ranks 2"}) {
    SCOPED_TRACE(kind);
    const std::string whole = fmt::format("whole{}", number);
    const std::string parts = fmt::format("parts{}", number++);
    const std::string steps = "train.steps=2 sample.every=5 " + kind + " sample.tokens=";
    ASSERT_EQ(run_lockstep("train " + settings(whole, steps + "7")).exit_code, 0);
    const pid_t child = start(settings(parts, steps + "2147483647"));
    const fs::path saved = folder / parts / "checkpoints" / "step-00000002" / "manifest.json";
    ASSERT_TRUE(testing::eventually([&] { return fs::exists(saved); }, std::chrono::seconds(60)));
    ::kill(child, SIGTERM);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 75) << text_of(folder / "log.txt");
    const Outcome more = run_lockstep("train " + settings(parts, steps + "7"));
    EXPECT_EQ(more.exit_code, 0) << more.text;
    EXPECT_FALSE(text_of(folder / whole / "samples.jsonl").empty());
    EXPECT_EQ(text_of(folder / parts / "samples.jsonl"), text_of(folder / whole / "samples.jsonl"));
  }
}

TEST_F(TrainEnd, WithALossThatIsNaNHasAnExitStatusOfItsOwn) {
  const std::string rate = "train.steps=1 optimizer.max_grad_norm=0 optimizer.learning_rate=1e37 ";
  int number = 0;
  for (const std::string kind : {"", "--ranks 2", "parallel.zero=3 --ranks 3"}) {
    SCOPED_TRACE(kind);
    const std::string dir = fmt::format("run{}", number++);
    const Outcome run = run_lockstep("train " + settings(dir, rate + kind));
    EXPECT_EQ(run.exit_code, 3) << run.text;
    EXPECT_THAT(run.text, AllOf(HasSubstr("validation after step 1 has a loss of"),
                                HasSubstr("block "), Not(HasSubstr("finished"))));
    EXPECT_FALSE(fs::exists(folder / dir / "checkpoints" / "step-00000001"));
  }
}

}  // namespace
}  // namespace lockstep
