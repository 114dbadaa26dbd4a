// Which checkpoints of a run stay, and which one it continues from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/train/checkpoint/checkpoint.h"
#include "tests/train/run/recorded_run.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
namespace fs = std::filesystem;

// While it lives this thread may read only what permissions say, even as root.
class PermissionsCount {
 public:
  PermissionsCount() {
    get(before_);
    Data now[2] = {before_[0], before_[1]};
    now[0].effective &= ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
    set(now);
  }
  ~PermissionsCount() { set(before_); }

 private:
  using Data = __user_cap_data_struct;
  static __user_cap_header_struct header() { return {_LINUX_CAPABILITY_VERSION_3, 0}; }
  static void get(Data* data) {
    auto all = header();
    EXPECT_EQ(::syscall(SYS_capget, &all, data), 0);
  }
  static void set(Data* data) {
    auto all = header();
    EXPECT_EQ(::syscall(SYS_capset, &all, data), 0);
  }
  Data before_[2] = {};
};

class KeptCheckpoints : public RecordedRun {
 protected:
  std::string train(const std::vector<std::string>& more) {
    return error_of([&] { run(tiny("a"), more, &recorder); });
  }
  std::vector<std::int64_t> kept() const { return CheckpointFolder(folder / "a").steps(); }
};

const std::vector<std::string> kOne = {"checkpoint.every=1", "checkpoint.keep_last=1",
                                       "optimizer.max_grad_norm=0"};

std::vector<std::string> with(std::vector<std::string> settings, const std::string& more) {
  settings.push_back(more);
  return settings;
}

TEST_F(KeptCheckpoints, OneWhoseLossTurnsOutNaNReplacesNoGoodOne) {
  for (const char* how : {"checkpoint.async_save=true", "checkpoint.async_save=false"}) {
    fs::remove_all(folder / "a");
    ASSERT_EQ(train(with(with(kOne, "train.steps=2"), how)), "");
    EXPECT_THAT(kept(), ElementsAre(2));
    EXPECT_THAT(train(with(with(kOne, "optimizer.learning_rate=1e30"), how)),
                AllOf(HasSubstr("step 4 has a loss of"),
                      HasSubstr("step-00000003, and the run continues from the last good"),
                      HasSubstr("step-00000002")));
    EXPECT_THAT(kept(), ElementsAre(3, 2));
    fs::remove_all(folder / "a/checkpoints/step-00000003");
    EXPECT_EQ(train(with(kOne, how)), "");
    EXPECT_EQ(recorder->facts.first_step, 3);
    EXPECT_THAT(kept(), ElementsAre(12));
  }
}

// Nothing has shown yet that the newest is good.
TEST_F(KeptCheckpoints, TheOneBeforeStaysWhereNothingIsHeldBackForValidation) {
  const auto unvalidated = with(kOne, "data.validation_fraction=0");
  ASSERT_EQ(train(with(unvalidated, "train.steps=3")), "");
  EXPECT_THAT(kept(), ElementsAre(3, 2));
  ASSERT_EQ(train(with(unvalidated, "train.steps=4")), "");
  EXPECT_THAT(kept(), ElementsAre(4, 3));
}

TEST_F(KeptCheckpoints, OneThatMayNotBeReadIsNotDamaged) {
  ASSERT_EQ(train({}), "");
  ASSERT_THAT(kept(), ElementsAre(12, 10));
  const fs::path newest = folder / "a/checkpoints/step-00000012";
  for (const fs::path& closed : {newest / "states.safetensors", newest / "manifest.json", newest}) {
    SCOPED_TRACE(closed);
    const fs::perms open = fs::status(closed).permissions();
    fs::permissions(closed, fs::perms::none);
    {
      const PermissionsCount now;
      EXPECT_THAT(train({"train.steps=14"}),
                  AllOf(HasSubstr("Permission denied"), HasSubstr("step-00000012"),
                        HasSubstr("let this user read it"), Not(HasSubstr("damaged"))));
      EXPECT_THAT(recorder->warnings, IsEmpty());
      EXPECT_THAT(recorder->losses, IsEmpty()) << "it did not continue from an earlier one";
    }
    fs::permissions(closed, open);
  }
  EXPECT_EQ(train({"train.steps=14"}), "");
  EXPECT_EQ(recorder->facts.first_step, 13);
}

}  // namespace
}  // namespace lockstep::train
