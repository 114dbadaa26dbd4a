// `lockstep train` where the system gives less than it needs: a full disk under the log, small
// files, little memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/train_command.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class TrainLimits : public testing::TrainCommand {
 protected:
  // With the shell's limit in force.
  testing::Outcome limited(const std::string& limit, const std::string& arguments) const {
    return testing::shell(limit + "; " + in_build("lockstep") + " train " + arguments + " 2>&1");
  }
};

TEST_F(TrainLimits, ALogWithoutRoomEndsNoJob) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string run = "run" + ranks;
    const auto outcome = testing::shell(in_build("lockstep") + " train " +
                                        settings(run, "train.steps=30 train.log_every=1") +
                                        " --ranks " + ranks + " > /dev/full 2>&1");
    EXPECT_EQ(outcome.exit_code, 0) << ranks;
    EXPECT_THAT(losses(run), SizeIs(30)) << ranks;
  }
}

TEST_F(TrainLimits, AFileThatMayNotGrowIsAnErrorThatNamesIt) {
  for (const std::string ranks : {"", " --ranks 2"}) {
    const auto outcome = limited("ulimit -f 4", settings("a", "train.steps=3") + ranks);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("File too large")) << ranks;
  }
}

// From what the loader cannot even map the libraries into, up to what is enough.
TEST_F(TrainLimits, LittleMemoryEndsInASentence) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer reserves more than any limit of this test";
#endif
  int failures = 0;
  for (const std::string ranks : {"", " --ranks 2"}) {
    for (int kibibytes = 20'000; kibibytes <= 70'000; kibibytes += 5'000) {
      const std::string limit = fmt::format("ulimit -v {}", kibibytes);
      const auto outcome = limited(limit, settings("a", "train.steps=2") + ranks);
      if (outcome.exit_code == 0) continue;
      EXPECT_THAT(outcome.exit_code, AnyOf(1, 2, 127)) << limit << ranks << "\n" << outcome.text;
      EXPECT_THAT(outcome.text, Not(HasSubstr("terminate called"))) << limit << ranks;
      EXPECT_THAT(outcome.text, Not(HasSubstr("SIG"))) << limit << ranks;
      EXPECT_THAT(outcome.text, AnyOf(HasSubstr("lockstep: "), HasSubstr("shared libraries")));
      ++failures;
    }
  }
  EXPECT_GT(failures, 4);
}

}  // namespace
}  // namespace lockstep
