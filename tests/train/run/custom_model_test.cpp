// Whole runs of a model that a program makes itself (examples/gated_mixer.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "examples/gated_mixer.h"
#include "lockstep/base/error.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::custom_model_test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

nn::Model mixer_of(const TrainOptions& options) {
  return example::make_mixer({.vocabulary = options.model.vocabulary,
                              .positions = setup_of(options).shape.sequence,
                              .width = options.model.hidden,
                              .layers = options.model.layers});
}

class CustomModel : public ThreadRuns {
 protected:
  void run(const std::string& dir, int ranks, int steps, const Settings& more = {}) const {
    run_ranks(
        ranks, small_run(dir, steps, more), [](Observers&) {},
        [](RunSettings& settings) { set_custom_model(settings.options.train, mixer_of); });
  }

  std::string error_of(int ranks, const Settings& more) const {
    try {
      run("refused", ranks, 2, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(CustomModel, LearnsWithTheSameBitsOnAnyNumberOfRanks) {
  const std::string tree = "parallel.reduction=tree";
  run("one", 1, 20, {tree});
  const Curve one = curve("one");
  ASSERT_THAT(one.losses, SizeIs(20));
  EXPECT_LT(one.losses.back(), 0.8 * one.losses.front());
  for (const int ranks : {2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, ZeRO " << zero);
      const std::string dir = "r" + std::to_string(ranks) + "z" + std::to_string(zero);
      run(dir, ranks, 20, {tree, "parallel.zero=" + std::to_string(zero)});
      EXPECT_EQ(curve(dir), one);
    }
  }
}

TEST_F(CustomModel, LearnsInPipelinesWithOffloadAndRecomputation) {
  run("one", 1, 20);
  const Curve one = curve("one");
  run("pipeline", 4, 20, {"parallel.pipeline=2"});
  expect_near(curve("pipeline"), one, 1e-5);
  run("servers", 2, 20, {"parallel.strategy=parameter_server"});
  expect_near(curve("servers"), one, 1e-5);
  for (const std::string setting : {"offload.optimizer=host", "train.recompute=full"}) {
    run(setting, 1, 20, {setting});
    EXPECT_EQ(curve(setting), one) << setting;
  }
}

TEST_F(CustomModel, ContinuesFromItsCheckpointOnOtherRanks) {
  run("whole", 1, 20, {"parallel.reduction=tree"});
  run("parts", 2, 8, {"parallel.reduction=tree", "parallel.zero=3"});
  run("parts", 1, 20, {"parallel.reduction=tree"});
  EXPECT_EQ(curve("parts").losses, curve("whole").losses);
}

TEST_F(CustomModel, IsRefusedByNameWhereItCannotTrain) {
  EXPECT_THAT(error_of(2, {"parallel.tensor=2"}),
              HasSubstr("parallel.tensor = 2 is not supported with model.family = \"custom\""));
  EXPECT_THAT(error_of(2, {"parallel.context=2"}),
              HasSubstr("parallel.context = 2 is not supported with model.family = \"custom\""));
  EXPECT_THAT(error_of(1, {"model.family=llama"}),
              HasSubstr("but model.family = \"llama\" is given"));
  // The command does not have the model.
  try {
    run_ranks(1, small_run("lacking", 2, {"model.family=custom"}));
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a model that a program makes itself"));
  }
}

}  // namespace
}  // namespace lockstep::train::custom_model_test
