// lockstep eval, and --checkpoint of the commands that read a model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/train/checkpoint/checkpoint.h"
#include "tests/cli/train_command.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using testing::shell;

class Eval : public testing::TrainCommand {
 protected:
  // By step, as metrics have them.
  std::map<std::int64_t, double> validations(const std::string& dir) const {
    std::map<std::int64_t, double> found;
    std::ifstream file(folder / dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const json one = json::parse(line);
      if (one.contains("val_loss")) found[one["step"]] = one["val_loss"];
    }
    return found;
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  // What goes to standard output alone.
  static json result_of(const std::string& arguments) {
    const Outcome outcome =
        shell(in_build("lockstep") + " eval " + arguments + " --json 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << arguments << outcome.text;
    return json::parse(outcome.text);
  }
};

TEST_F(Eval, IsTheValidationLossInMetricsWithAnyNumberOfRanks) {
  ASSERT_EQ(run_lockstep("train " + settings("run",
                                             "train.steps=6 train.validate_every=3 "
                                             "train.validate_batches=5 train.micro_batch_size=2 "
                                             "checkpoint.every=3 checkpoint.keep_last=5"))
                .exit_code,
            0);
  const auto losses = validations("run");
  ASSERT_EQ(losses.size(), 2u);
  const json one = result_of(path("run"));
  EXPECT_EQ(one["loss"], losses.at(6));
  EXPECT_EQ(one["ranks"], 1);
  for (const int ranks : {2, 3}) {
    const json several = result_of(fmt::format("{} --ranks {}", path("run"), ranks));
    EXPECT_EQ(several["loss"], losses.at(6));
    EXPECT_EQ(several["bits_per_byte"], one["bits_per_byte"]);
    EXPECT_EQ(several["ranks"], ranks);
  }
  EXPECT_EQ(result_of(path("run") + " --checkpoint 3")["loss"], losses.at(3));
  EXPECT_EQ(result_of(path("run/checkpoints/step-00000003"))["loss"], losses.at(3));

  const std::string text = " data.text=" + path("text.txt");
  const json all = result_of(path("run") + text);
  EXPECT_EQ(all["available_sequences"], all["sequences"]);
  EXPECT_EQ(result_of(path("run") + text + " --ranks 2")["loss"], all["loss"]);
  EXPECT_EQ(result_of(path("run") + text + " --batches 3")["sequences"], 6);
  EXPECT_EQ(result_of(path("run") + text + " --split validation")["available_sequences"],
            one["available_sequences"]);

  const Outcome shown = run_lockstep("eval " + path("run"));
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.text,
              AllOf(HasSubstr(fmt::format("loss           {:.6f}", losses.at(6))),
                    HasSubstr("perplexity"), HasSubstr("bits per byte"), HasSubstr("tokens/s")));
}

TEST_F(Eval, RefusesWhatCannotBe) {
  ASSERT_EQ(run_lockstep("train " + settings("run", "train.steps=1")).exit_code, 0);
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome outcome = run_lockstep("eval " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(why));
  };
  refused("", "needs the folder of a run");
  refused("data.text=" + path("text.txt"), "needs the folder of a run");
  refused(path("nothing"), "is not a folder");
  refused(path("run") + " data.text=" + path("missing.txt"), "there is nothing of that name");
  refused(path("run") + " optimizer.learning_rate=1", "has no effect on an evaluation");
  refused(path("run") + " data.txet=a", "did you mean data.text");
  refused(path("run") + " --split half", "--split is 'half'");
  refused(path("run") + " --checkpoint last", "neither newest nor best");
  const Outcome ranks = run_lockstep("eval " + path("run") + " train.seq_len=99 --ranks 2");
  EXPECT_EQ(ranks.exit_code, 2) << ranks.text;
  EXPECT_THAT(ranks.text, HasSubstr("99"));
}

// Its loss rises and falls.
constexpr const char* kUneven =
    "train.steps=12 train.validate_every=1 train.validate_batches=3 checkpoint.every=4 "
    "checkpoint.keep_last=1 checkpoint.keep_best=2 optimizer.learning_rate=0.3 "
    "schedule.decay=constant optimizer.max_grad_norm=0";

TEST_F(Eval, FindsTheBestCheckpointAsOtherCommandsDo) {
  ASSERT_EQ(run_lockstep("train " + settings("run", kUneven)).exit_code, 0);
  const auto losses = validations("run");
  ASSERT_EQ(losses.size(), 12u);
  auto best = losses.begin();
  for (auto one = best; one != losses.end(); ++one) {
    if (one->second < best->second) best = one;
  }
  ASSERT_NE(best->first, 12);
  const json found = result_of(path("run") + " --checkpoint best");
  EXPECT_EQ(found["step"], best->first);
  EXPECT_EQ(found["loss"], best->second);
  const std::string step = fmt::format("step-{:08}", best->first);
  const Outcome shown = run_lockstep("inspect " + path("run"));
  EXPECT_THAT(shown.text, AllOf(HasSubstr("val loss"), HasSubstr("whole, best")));
  EXPECT_THAT(run_lockstep("inspect " + path("run") + " --checkpoint best").text,
              AllOf(HasSubstr(step), HasSubstr("validation loss")));
  const std::string to_generate = " it --tokens 8 --temperature 0 --precision f32 2>/dev/null";
  const std::string command = in_build("lockstep") + " generate ";
  EXPECT_EQ(shell(command + path("run") + " --checkpoint best" + to_generate).text,
            shell(command + path("run/checkpoints/" + step) + to_generate).text);
  ASSERT_EQ(
      run_lockstep("export " + path("run") + " " + path("best") + " --checkpoint best").exit_code,
      0);
  ASSERT_EQ(
      run_lockstep("export " + path("run/checkpoints/" + step) + " " + path("same")).exit_code, 0);
  EXPECT_EQ(text_of(folder / "best/model.safetensors"), text_of(folder / "same/model.safetensors"));
}

TEST_F(Eval, BestCheckpointsSurviveKillsAtAnyMoment) {
  const auto command = [&](const std::string& dir) { return settings(dir, kUneven); };
  ASSERT_EQ(run_lockstep("train " + command("whole")).exit_code, 0);
  for (int step = 1; step <= 11; step += 2) {
    const pid_t child = start(command("killed"));
    wait_for_step("killed", fmt::format("\"step\":{},", step).c_str());
    ::kill(child, SIGKILL);
    wait_for(child);
    // Whatever was being written or removed: what has a name is whole.
    const train::CheckpointFolder checkpoints(folder / "killed");
    const auto losses = validations("killed");
    for (const auto& one : checkpoints.by_validation()) {
      EXPECT_NO_THROW(train::open_checkpoint(checkpoints.path(one.step), {}));
    }
  }
  ASSERT_EQ(run_lockstep("train " + command("killed")).exit_code, 0);
  const train::CheckpointFolder whole(folder / "whole");
  const train::CheckpointFolder killed(folder / "killed");
  EXPECT_EQ(killed.steps(), whole.steps());
  ASSERT_EQ(killed.by_validation().size(), whole.by_validation().size());
  for (std::size_t i = 0; i < whole.by_validation().size(); ++i) {
    EXPECT_EQ(killed.by_validation()[i].step, whole.by_validation()[i].step);
    EXPECT_EQ(killed.by_validation()[i].loss, whole.by_validation()[i].loss);
  }
}

TEST_F(Eval, ARunThatStopsEarlyExitsWithZeroAndSaysWhy) {
  const std::string all = settings("run", std::string(kUneven) + " train.early_stopping=2");
  const Outcome one = run_lockstep("train " + all);
  EXPECT_EQ(one.exit_code, 0) << one.text;
  EXPECT_THAT(one.text,
              AllOf(HasSubstr("stopped early after step"), HasSubstr("finished at step")));
  const std::string two_ranks =
      settings("ranks", std::string(kUneven) +
                            " train.early_stopping=2 parallel.reduction=tree "
                            "train.micro_batch_size=1 --ranks 2");
  const Outcome two = run_lockstep("train " + two_ranks);
  EXPECT_EQ(two.exit_code, 0) << two.text;
  EXPECT_THAT(two.text, HasSubstr("stopped early after step"));
  EXPECT_THAT(run_lockstep("train " + all).text, HasSubstr("stopped early after step"));
  const Outcome refused =
      run_lockstep("train " + settings("async",
                                       "train.early_stopping=2 parallel.strategy=parameter_server "
                                       "parallel.consistency=asp train.steps=2"));
  EXPECT_THAT(refused.text, HasSubstr("train.early_stopping needs workers that wait"));
}

}  // namespace
}  // namespace lockstep
