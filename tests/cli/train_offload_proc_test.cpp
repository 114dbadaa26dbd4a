// `lockstep train` with less memory on the device than the model's states take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/train_command.h"

namespace lockstep::train_offload_proc_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_lockstep;

constexpr const char* kAllOnHost =
    " offload.optimizer=host offload.gradients=host offload.parameters=host "
    "offload.activations=host";

class TrainOffload : public testing::TrainCommand {
 protected:
  std::string deep(const std::string& dir, const std::string& more) const {
    return settings(dir, "model.layers=12 train.log_every=1 " + more);
  }
  // A number of `lockstep plan --json`.
  static std::size_t number(const std::string& json, const std::string& key) {
    const std::size_t at = json.find('"' + key + "\":");
    EXPECT_NE(at, std::string::npos) << key << " in " << json;
    return std::stoull(json.substr(at + key.size() + 3));
  }
};

TEST_F(TrainOffload, AModelOfFourTimesTheDevicesMemoryTrainsToTheSameLosses) {
  const Outcome planned = run_lockstep("plan --json " + deep("planned", ""));
  ASSERT_EQ(planned.exit_code, 0) << planned.text;
  const std::size_t limit = 16 * number(planned.text, "parameters") / 4;
  const std::string limited = " memory.device_limit=" + std::to_string(limit);

  const Outcome refused = run_lockstep("train " + deep("refused", "train.steps=4" + limited));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("over memory.device_limit"),
                                  HasSubstr("offload.optimizer = \"host\"")));

  const Outcome plain = run_lockstep("train " + deep("plain", "train.steps=4"));
  ASSERT_EQ(plain.exit_code, 0) << plain.text;
  const Outcome fits = run_lockstep("plan " + deep("planned", limited + kAllOnHost));
  EXPECT_THAT(fits.text,
              AllOf(HasSubstr("on the host"), HasSubstr("fits into memory.device_limit")));
  // Begun from the host, and gone on with from the device.
  const Outcome half = run_lockstep(
      "train " + deep("moved", "train.steps=2 schedule.decay_steps=4" + limited + kAllOnHost));
  ASSERT_EQ(half.exit_code, 0) << half.text;
  const Outcome rest =
      run_lockstep("train " + deep("moved", "train.steps=4 schedule.decay_steps=4"));
  ASSERT_EQ(rest.exit_code, 0) << rest.text;
  EXPECT_EQ(losses("moved"), losses("plain"));
}

}  // namespace
}  // namespace lockstep::train_offload_proc_test
