// Processes that shard the states of one model: any number of ranks resumes from their checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <string>

#include "tests/cli/train_ranks.h"

namespace lockstep::train_zero_proc_test {
namespace {

using ::testing::AllOf;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
namespace fs = std::filesystem;

class TrainZero : public testing::TrainRanks {
 protected:
  Outcome train(const std::string& arguments) const { return run_lockstep("train " + arguments); }
  void expect_trains(const std::string& arguments) const {
    const Outcome outcome = train(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << arguments << '\n' << outcome.text;
  }

  // model.safetensors of an export.
  std::string exported(const std::string& from) const {
    const fs::path to = folder / (from + "-exported");
    const Outcome outcome = run_lockstep("export " + (folder / from).string() + " " + to.string());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    const std::string text = text_of(to / "model.safetensors");
    EXPECT_FALSE(text.empty());
    return text;
  }

  // What the metrics say of validation.
  std::vector<std::string> validations(const std::string& dir) const {
    std::vector<std::string> found;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const std::size_t at = line.find("\"val_loss\"");
      if (at != std::string::npos) found.push_back(line.substr(at, line.find(',', at) - at));
    }
    return found;
  }

  std::vector<std::string> half_written(const std::string& dir) const {
    std::vector<std::string> found;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder / dir / "checkpoints", none)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(".")) found.push_back(name);
    }
    return found;
  }

  // A rank is killed when `moment` has come, and with it the run.
  template <class Moment>
  void train_and_kill(const std::string& dir, const std::string& arguments, const std::string& rank,
                      Moment moment) const {
    const pid_t launcher = start(arguments + " --max-restarts 0");
    ASSERT_TRUE(eventually(moment)) << text_of(folder / "log.txt");
    const auto found = ranks(dir, rank);
    ASSERT_EQ(found.size(), 1u) << text_of(folder / "log.txt");
    ::kill(found.front(), SIGKILL);
    const int status = wait_for(launcher);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL) << text_of(folder / "log.txt");
    expect_nobody_left(dir);
  }
};

TEST_F(TrainZero, GivesTheBitsOfOneAndIsExportedAndGoneOnWithLikeAnyRun) {
  const std::string steps =
      "train.steps=6 checkpoint.every=3 train.validate_every=3 sample.every=3 sample.tokens=21 ";
  expect_trains(tree("one", steps));
  const std::string model = exported("one");
  for (const std::string stage : {"1", "2", "3"}) {
    const std::string dir = "zero" + stage;
    expect_trains(tree(dir, steps + "parallel.zero=" + stage + " --ranks 4"));
    EXPECT_EQ(losses(dir), losses("one"));
    EXPECT_EQ(validations(dir), validations("one"));
    // Samples have more tokens than a context. Where no rank has all parameters, every token takes
    // a pass over the text.
    EXPECT_EQ(text_of(folder / dir / "samples.jsonl"), text_of(folder / "one/samples.jsonl"));
    EXPECT_EQ(exported(dir), model);
  }
  const Outcome shown = run_lockstep("inspect " + (folder / "zero3").string());
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.text, AllOf(HasSubstr("states-00004-of-00004.safetensors"),
                                HasSubstr("moment/layer.1."), HasSubstr("whole")));
  // Parameters of it, and of what was exported, at every rank its own.
  const auto from = [&](const std::string& dir, const std::string& source) {
    return tree(dir, "train.steps=3 run.init_from=" + (folder / source).string() + " ");
  };
  expect_trains(from("from-one", "one"));
  expect_trains(from("from-zero", "zero3") + "parallel.zero=2 --ranks 2");
  expect_trains(from("from-exported", "zero3-exported") + "parallel.zero=3 --ranks 4");
  EXPECT_EQ(losses("from-zero"), losses("from-one"));
  EXPECT_EQ(losses("from-exported"), losses("from-one"));
}

TEST_F(TrainZero, KilledAtAnyMomentGoesOnWithAnyNumberOfRanksAtAnyStage) {
  const std::string steps = "train.steps=40 checkpoint.every=1 ";
  expect_trains(tree("whole", steps));
  const std::string run = tree("killed", steps);
  const auto saving = [&] { return !half_written("killed").empty(); };
  const auto after = [&](const char* step) {
    return [this, step] {
      return text_of(folder / "killed" / "metrics.jsonl").find(step) != std::string::npos;
    };
  };
  train_and_kill("killed", run + "parallel.zero=3 --ranks 4", "2", after("\"step\":3,"));
  train_and_kill("killed", run + "parallel.zero=3 --ranks 4", "1",
                 [&] { return after("\"step\":8,")() && saving(); });
  train_and_kill("killed", run + "parallel.zero=1 --ranks 2", "0",
                 [&] { return after("\"step\":14,")() && saving(); });
  train_and_kill("killed", run + "parallel.zero=3 parallel.partition=layer --ranks 4", "3",
                 [&] { return after("\"step\":19,")() && saving(); });
  expect_trains(run + "parallel.zero=2 train.steps=30 schedule.decay_steps=40 --ranks 2");
  EXPECT_EQ(half_written("killed"), std::vector<std::string>());
  expect_trains(run + "--ranks 1");
  EXPECT_EQ(losses("killed"), losses("whole"));
  EXPECT_EQ(states("killed", "00000040"), states("whole", "00000040"));
  EXPECT_EQ(exported("killed"), exported("whole"));
}

TEST_F(TrainZero, PassesOverADamagedFileAndSaysWhich) {
  const std::string run = tree("run", "parallel.zero=3 checkpoint.every=2 --ranks 2 ");
  expect_trains(run + "train.steps=4");
  fs::remove(folder / "run/checkpoints/step-00000004/states-00002-of-00002.safetensors");
  const Outcome outcome = train(run + "train.steps=5");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("states-00002-of-00002.safetensors is damaged"),
                                  HasSubstr("continues after step 2")));
}

// Three ranks have neither micro-batches nor a validation that come out even.
TEST_F(TrainZero, ValidatesAndFindsWhatIsNoNumberThoughRanksHaveUnequalShares) {
  for (const std::string stage : {"2", "3"}) {
    const std::string run =
        settings("run" + stage, "train.micro_batch_size=1 parallel.zero=" + stage + " --ranks 3 ");
    const Outcome good =
        train(run + "train.steps=2 train.validate_every=1 sample.every=1 sample.tokens=3");
    EXPECT_EQ(good.exit_code, 0) << good.text;
    EXPECT_EQ(validations("run" + stage).size(), 2u);
    EXPECT_THAT(good.text, AllOf(HasSubstr("sample after step 2"), Not(HasSubstr("no sample"))));
    const Outcome bad =
        train(run + "train.steps=9 optimizer.learning_rate=1e37 schedule.warmup_steps=0");
    EXPECT_NE(bad.exit_code, 0);
    EXPECT_THAT(bad.text, AllOf(HasSubstr("block "), HasSubstr("(at rank "),
                                HasSubstr("the last good checkpoint is")));
    EXPECT_THAT(bad.text, Not(HasSubstr("was killed")));  // it ended by itself
  }
}

TEST_F(TrainZero, QuantisedBetweenMachinesGoesOnToTheBitAndSaysWhatCrossed) {
  const std::string machines =
      "--ranks 4 comm.emulated_nodes=2 comm.emulate=1Gbit,20us train.precision=bf16 ";
  const std::string plus_plus =
      "parallel.zero=3 parallel.quantized_weights=int8 parallel.secondary_partition=true "
      "parallel.quantized_gradients=int4 ";
  const std::string run = machines + plus_plus + "checkpoint.every=3 train.validate_every=3 ";
  expect_trains(settings("whole", run + "train.steps=6"));
  expect_trains(settings("twice", run + "train.steps=3 schedule.decay_steps=6"));
  expect_trains(settings("twice", run + "train.steps=6"));
  EXPECT_EQ(losses("twice"), losses("whole"));
  EXPECT_EQ(validations("twice"), validations("whole"));
  EXPECT_EQ(exported("twice"), exported("whole"));
  EXPECT_THAT(text_of(folder / "whole" / "metrics.jsonl"), HasSubstr("\"bytes_across\":"));

  const Outcome uneven = train(settings("uneven", "--ranks 3 comm.emulated_nodes=2 " + plus_plus));
  EXPECT_NE(uneven.exit_code, 0);
  EXPECT_THAT(uneven.text, HasSubstr("the same number of ranks on every node"));
}

}  // namespace
}  // namespace lockstep::train_zero_proc_test
