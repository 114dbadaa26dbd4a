// A run's folder that an earlier version wrote, when many keys had other names: its config.toml,
// and that of its checkpoint, are read by those names. tests/fixtures/run-with-former-keys is such
// a run of 4 steps by 2 workers at parallel.zero = 3, with its text beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
namespace fs = std::filesystem;

class FormerRun : public ::testing::Test {
 protected:
  FormerRun() {
    fs::copy(in_sources("tests/fixtures/run-with-former-keys"), run_, fs::copy_options::recursive);
  }

  std::string text_of(const fs::path& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  ScratchFolder scratch_;
  const fs::path run_ = scratch_.path() / "run";
};

TEST_F(FormerRun, IsResumedAsItsOwnVersionResumedIt) {
  const Outcome outcome =
      run_lockstep("train " + run_.string() + " train.steps=6 --ranks 2 data.text=" +
                   in_sources("tests/fixtures/run-with-former-keys.txt"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, Not(HasSubstr("the data has changed")));

  // What the version that wrote it got for steps 5 and 6.
  constexpr double kLosses[] = {2.96980294957757, 2.9619064815342426};
  constexpr double kRates[] = {0.0027639320225002107, 0.002};
  std::ifstream metrics(run_ / "metrics.jsonl");
  int seen = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto step = nlohmann::json::parse(line);
    const int number = step["step"].get<int>();
    if (number < 5) continue;
    EXPECT_NEAR(step["loss"].get<double>(), kLosses[number - 5], 1e-6);
    EXPECT_DOUBLE_EQ(step["lr"].get<double>(), kRates[number - 5]);
    ++seen;
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(FormerRun, IsWrittenBackByThePresentNames) {
  const Outcome outcome =
      run_lockstep("train " + run_.string() + " train.steps=5 --ranks 2 data.text=" +
                   in_sources("tests/fixtures/run-with-former-keys.txt"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  for (const fs::path& file :
       {run_ / "config.toml", run_ / "checkpoints/step-00000005/config.toml"}) {
    EXPECT_THAT(text_of(file),
                AllOf(HasSubstr("optimizer.learning_rate = 0.01 "),
                      HasSubstr("parallel.reshard_after_forward = true "),
                      HasSubstr("model.tie_word_embeddings = \"false\" "),
                      Not(HasSubstr("schedule.rate")), Not(HasSubstr("keep_at_turn"))));
  }
}

TEST_F(FormerRun, GeneratesTheTextThatItsOwnVersionGenerated) {
  for (const fs::path& model : {run_, run_ / "checkpoints/step-00000004"}) {
    const Outcome outcome = run_lockstep(
        "generate " + model.string() + " 'the ' --tokens 20 --seed 3 --precision f32 --device cpu");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("the lgvcthpmhmnnwm ctfma"));
  }
}

TEST_F(FormerRun, StartsAnotherRun) {
  const Outcome outcome =
      run_lockstep("train run.init_from=" + (run_ / "checkpoints/step-00000004").string() +
                   " run.dir=" + (scratch_.path() / "next").string() +
                   " data.text=" + in_sources("tests/fixtures/run-with-former-keys.txt") +
                   " train.seq_len=16 train.global_batch_size=2 train.precision=f32 train.steps=1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("step 1/1"));
}

}  // namespace
}  // namespace lockstep
