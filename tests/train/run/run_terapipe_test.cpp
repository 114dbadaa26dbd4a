// Whole runs whose sequences go through a pipeline in slices of tokens, as threads: they follow one
// worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_terapipe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Mesh {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int zero = 0;
  int slices = 0;
  std::string text() const {
    return fmt::format("data {}, pipeline {}, tensor {}, ZeRO {}, {} slices", data, pipeline,
                       tensor, zero, slices);
  }
};

class RunTeraPipe : public ThreadRuns {
 protected:
  void run(const std::string& dir, const Mesh& mesh, int steps, const Settings& more = {}) const {
    // At ten times this rate four layers turn rounding into other losses, without slices too.
    Settings settings = {"train.micro_batch_size=1",
                         "optimizer.learning_rate=0.001",
                         "model.layers=4",
                         "parallel.tensor=" + std::to_string(mesh.tensor),
                         "parallel.pipeline=" + std::to_string(mesh.pipeline),
                         "parallel.zero=" + std::to_string(mesh.zero)};
    if (mesh.pipeline > 1) {
      settings.insert(settings.end(), {"parallel.pipeline_schedule=terapipe",
                                       "parallel.pipeline_slices=" + std::to_string(mesh.slices)});
    }
    settings.insert(settings.end(), more.begin(), more.end());
    run_ranks(mesh.data * mesh.pipeline * mesh.tensor, small_run(dir, steps, settings));
  }

  std::string error_of(const Settings& more) const {
    try {
      run("refused", {.pipeline = 2, .slices = 2}, 2, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(RunTeraPipe, EveryMeshFollowsOneWorker) {
  int number = 0;
  for (const Settings& model :
       {Settings{"model.family=gpt2"}, Settings{"model.family=llama", "model.kv_heads=2"},
        with_window(kCappedGemma2)}) {
    const std::string one = "one" + std::to_string(number);
    run(one, {}, 20, model);
    for (const Mesh& mesh : {Mesh{.pipeline = 2, .slices = 2}, Mesh{.pipeline = 4, .slices = 3},
                             Mesh{.pipeline = 3, .slices = 8}, Mesh{.pipeline = 2, .slices = 1},
                             Mesh{.data = 2, .pipeline = 2, .slices = 3},
                             Mesh{.data = 2, .pipeline = 2, .zero = 1, .slices = 2},
                             Mesh{.data = 2, .pipeline = 2, .zero = 2, .slices = 2},
                             Mesh{.data = 2, .pipeline = 2, .zero = 3, .slices = 3},
                             Mesh{.pipeline = 2, .tensor = 2, .slices = 3}}) {
      SCOPED_TRACE(model.front() + ": " + mesh.text());
      const std::string dir = "run" + std::to_string(number++);
      run(dir, mesh, 20, model);
      expect_near(curve(dir), curve(one), 1e-5);
    }
  }
}

TEST_F(RunTeraPipe, TheFastestSlicesFollowOneWorker) {
  const Settings longer = {"train.seq_len=128", "train.global_batch_size=2"};
  run("one", {}, 6, longer);
  run("run", {.pipeline = 4}, 6, longer);
  expect_near(curve("run"), curve("one"), 1e-5);
}

// What is kept is recomputed to the same bits.
TEST_F(RunTeraPipe, SelectiveRecomputationKeepsTheBits) {
  run("none", {.pipeline = 2, .slices = 3}, 6, {"train.recompute=none"});
  run("selective", {.pipeline = 2, .slices = 3}, 6, {"train.recompute=selective"});
  EXPECT_EQ(curve("selective"), curve("none"));
}

TEST_F(RunTeraPipe, Bf16FollowsOneWorker) {
  run("one", {}, 6, {"train.precision=bf16"});
  run("run", {.pipeline = 3, .slices = 3}, 6, {"train.precision=bf16"});
  expect_near(curve("run").losses, curve("one").losses, 2e-2);
}

// Slices draw other numbers than whole sequences, and all stages the same ones again.
TEST_F(RunTeraPipe, DropoutDoesNotDependOnTheStages) {
  const Settings drops = {"model.dropout=0.1", "model.family=llama"};
  run("two", {.pipeline = 2, .slices = 2}, 6, drops);
  run("three", {.pipeline = 3, .slices = 2}, 6, drops);
  EXPECT_EQ(curve("two").losses, curve("three").losses);
}

TEST_F(RunTeraPipe, CheckpointsContinueOnOtherMeshes) {
  run("whole", {}, 12);
  run("moved", {.pipeline = 3, .slices = 4}, 6);
  run("moved", {.data = 2}, 12);
  expect_near(curve("moved").losses, curve("whole").losses, 1e-5);
}

TEST_F(RunTeraPipe, StagesSendWhatWholeSequencesSend) {
  run("run", {.pipeline = 3, .slices = 3}, 3, {"model.family=llama"});
  int steps = 0;
  read_metrics(folder / "run", [&](const StepRecord& record) {
    ASSERT_TRUE(record.workers);
    // Two boundaries, two directions, eight sequences of [8 tokens, 32].
    EXPECT_EQ(record.workers->bytes_sent, 2 * 2 * 8 * 8 * 32 * sizeof(float));
    ++steps;
  });
  EXPECT_EQ(steps, 3);
}

TEST_F(RunTeraPipe, WhatHasNoSlicesIsRefused) {
  EXPECT_THAT(error_of({"model.family=bert"}),
              HasSubstr("model.family = \"bert\" is not supported with "
                        "parallel.pipeline_schedule = \"terapipe\""));
  EXPECT_THAT(error_of({"train.micro_batch_size=2"}), HasSubstr("take train.micro_batch_size = 1"));
  EXPECT_THAT(error_of({"train.recompute=full"}), HasSubstr("train.recompute = \"full\""));
  EXPECT_THAT(error_of({"parallel.pipeline_slices=9"}),
              HasSubstr("parallel.pipeline_slices = 9, but a sequence has 8 tokens"));
  EXPECT_THAT(error_of({"parallel.reduction=tree"}),
              HasSubstr("parallel.reduction = \"tree\" together with"));
}

TrainOptions sliced_options(int slices) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kLlama,
                   .layers = 8,
                   .hidden = 64,
                   .heads = 4,
                   .vocabulary = 32,
                   .positions = 1024};
  options.batch = {.sequence = 1024, .micro = 1, .accumulation = 1};
  options.parallel.pipeline = 4;
  options.parallel.pipeline_schedule = "terapipe";
  options.parallel.pipeline_slices = slices;
  return options;
}

TEST(TokenSlicesOfRuns, AreEqualOrShrinkTowardsTheEnd) {
  EXPECT_THAT(token_slices_of(sliced_options(4)), ElementsAre(256, 256, 256, 256));
  EXPECT_THAT(token_slices_of(sliced_options(1)), IsEmpty());
  const std::vector<std::int64_t> best = token_slices_of(sliced_options(0));
  ASSERT_GT(best.size(), 3u);
  EXPECT_EQ(std::accumulate(best.begin(), best.end(), std::int64_t{0}), 1024);
  EXPECT_GT(best.front(), best.back()) << "later tokens attend to more keys";
  EXPECT_EQ(most_backwards(sliced_options(0)), static_cast<std::int64_t>(best.size()));
}

}  // namespace
}  // namespace lockstep::train::run_terapipe_test
