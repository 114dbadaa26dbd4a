// Whole runs of pipelines, as threads: alone they have the bits of one worker, with data
// parallelism those of the same workers without a pipeline, and on any mesh its losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/model_io/interchange.h"
#include "lockstep/train/model_io/saved_model.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_pipeline_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct Mesh {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;
  int zero = 0;
  std::string schedule = "1f1b";
  int ranks() const { return data * pipeline * tensor; }
  std::string text() const {
    return fmt::format("data {}, pipeline {} ({}), tensor {}, ZeRO {}", data, pipeline, schedule,
                       tensor, zero);
  }
};

class RunPipeline : public ThreadRuns {
 protected:
  RunPipeline() {
    std::ofstream pairs(folder / "pairs.tsv");
    for (int i = 0; i < 200; ++i) pairs << "the fox " << i << "\tle renard " << i << "\n";
  }

  Settings translation(const std::string& family) const {
    return {"model.family=" + family, "data.text=", "data.pairs=" + (folder / "pairs.tsv").string(),
            "data.tokenizer=bpe", "data.bpe_vocabulary=280"};
  }

  void run(const std::string& dir, const Mesh& mesh, int steps, const Settings& more = {}) const {
    Settings settings = {"parallel.tensor=" + std::to_string(mesh.tensor),
                         "parallel.pipeline=" + std::to_string(mesh.pipeline),
                         "parallel.pipeline_schedule=" + mesh.schedule,
                         "parallel.zero=" + std::to_string(mesh.zero)};
    settings.insert(settings.end(), more.begin(), more.end());
    run_ranks(mesh.ranks(), small_run(dir, steps, settings));
  }

  std::string error_of(const Mesh& mesh, const Settings& more) const {
    try {
      run("refused", mesh, 2, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

const Settings kUntiedGpt2 = {"model.family=gpt2", "model.tie_word_embeddings=false"};
const Settings kLlama = {"model.family=llama"};
const Settings kMixtral = {"model.family=mixtral", "model.experts=5", "model.router_loss=0.1"};

Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

TEST_F(RunPipeline, HasTheBitsOfOneWorker) {
  int number = 0;
  for (const Settings& model : {kLlama, kUntiedGpt2, kMixtral}) {
    const Settings four = with(model, {"model.layers=4", "model.dropout=0.1"});
    const std::string one = "one" + std::to_string(number);
    run(one, {}, 20, four);
    for (const Mesh& mesh :
         {Mesh{.pipeline = 2}, Mesh{.pipeline = 3, .schedule = "gpipe"}, Mesh{.pipeline = 4},
          Mesh{.pipeline = 2, .schedule = "interleaved"},
          Mesh{.pipeline = 3, .schedule = "interleaved"}, Mesh{.pipeline = 3, .schedule = "zb_h1"},
          Mesh{.pipeline = 2, .schedule = "zb_h2"},
          Mesh{.pipeline = 6, .schedule = "sequential"}}) {
      SCOPED_TRACE(mesh.text());
      const std::string dir = "run" + std::to_string(number++);
      run(dir, mesh, 20, four);
      expect_same_bits(dir, one);
    }
  }
}

TEST_F(RunPipeline, RecomputationAndHalfPrecisionKeepTheBits) {
  int number = 0;
  for (const std::string precision : {"bf16", "f16"}) {
    for (const std::string mode : {"none", "selective", "full"}) {
      const Settings settings = with(
          kLlama, {"train.precision=" + precision, "train.recompute=" + mode, "model.layers=3"});
      const std::string one = "one" + std::to_string(number);
      const std::string dir = "run" + std::to_string(number++);
      run(one, {}, 6, settings);
      run(dir, {.pipeline = 3}, 6, settings);
      expect_same_bits(dir, one);
      run(dir + "-zb", {.pipeline = 2, .schedule = "zb_h1"}, 6, settings);
      expect_same_bits(dir + "-zb", one);
    }
  }
}

// Every stage reduces over the workers of its place; a sum over workers does not depend on the
// stages.
TEST_F(RunPipeline, WorkersHaveTheBitsThatTheyHaveWithoutAPipeline) {
  int number = 0;
  for (const int zero : {0, 1, 2, 3}) {
    const std::string plain = "plain" + std::to_string(zero);
    run(plain, {.data = 2, .zero = zero}, 10, kLlama);
    for (const std::string schedule : {"1f1b", "interleaved", "zb_h1"}) {
      if (zero > 1 && schedule == "zb_h1") continue;  // refused
      const Mesh mesh{.data = 2, .pipeline = 2, .zero = zero, .schedule = schedule};
      SCOPED_TRACE(mesh.text());
      const std::string dir = "mesh" + std::to_string(number++);
      run(dir, mesh, 10, kLlama);
      expect_same_bits(dir, plain);
    }
  }
}

TEST_F(RunPipeline, TheTreeGivesTheBitsOfOneWorkerWithZero) {
  const Settings tree = with(kLlama, {"parallel.reduction=tree"});
  run("one", {}, 20, tree);
  for (const int zero : {0, 1, 2, 3}) {
    const Mesh mesh{.data = 2, .pipeline = 2, .zero = zero};
    SCOPED_TRACE(mesh.text());
    run("tree" + std::to_string(zero), mesh, 20, tree);
    expect_same_bits("tree" + std::to_string(zero), "one");
  }
}

// The table has the gradients of the last stage's logits and of the first stage's rows, added up
// separately: other bits, the same losses.
TEST_F(RunPipeline, ATableThatStagesShareFollowsOneWorker) {
  int number = 0;
  for (const Settings& model :
       {Settings{"model.family=gpt2"}, Settings{"model.family=bert"},
        translation("encoder-decoder"), translation("t5"), with_window(kCappedGemma2)}) {
    const std::string one = "one" + std::to_string(number);
    run(one, {}, 20, model);
    for (const Mesh& mesh :
         {Mesh{.pipeline = 2}, Mesh{.pipeline = 4, .schedule = "gpipe"},
          Mesh{.pipeline = 2, .schedule = "interleaved"}, Mesh{.data = 2, .pipeline = 2, .zero = 3},
          Mesh{.data = 2, .pipeline = 2, .zero = 1, .schedule = "interleaved"}}) {
      SCOPED_TRACE(model.front() + ": " + mesh.text());
      const std::string dir = "run" + std::to_string(number++);
      run(dir, mesh, 20, model);
      expect_near(curve(dir), curve(one), 1e-5);
    }
  }
}

TEST_F(RunPipeline, EveryMeshFollowsOneWorker) {
  run("one", {}, 20, kLlama);
  int number = 0;
  for (const Mesh& mesh :
       {Mesh{.data = 2, .pipeline = 2, .tensor = 2},
        Mesh{.data = 2, .pipeline = 2, .tensor = 2, .zero = 2, .schedule = "gpipe"},
        Mesh{.data = 1, .pipeline = 2, .tensor = 4},
        Mesh{.data = 2, .pipeline = 3, .zero = 3, .schedule = "interleaved"},
        Mesh{.data = 1, .pipeline = 2, .tensor = 2, .schedule = "sequential"},
        Mesh{.data = 2, .pipeline = 2, .tensor = 2, .zero = 1, .schedule = "zb_h2"}}) {
    SCOPED_TRACE(mesh.text());
    Settings settings = kLlama;
    if (mesh.schedule == "interleaved") settings.push_back("parallel.pipeline_chunks=1");
    const std::string dir = "mesh" + std::to_string(number++);
    run(dir, mesh, 20, settings);
    expect_near(curve(dir), curve("one"), 1e-5);
  }
  run("sequence", {.data = 2, .pipeline = 2, .tensor = 2, .zero = 3}, 20,
      with(kLlama, {"parallel.sequence=true"}));
  expect_near(curve("sequence"), curve("one"), 1e-5);
}

TEST_F(RunPipeline, CheckpointsMoveBetweenMeshes) {
  run("whole", {}, 12);
  const Mesh from[] = {{.data = 2, .pipeline = 2, .tensor = 2}, {.pipeline = 3}, {.data = 2}};
  const Mesh to[] = {{.data = 4, .zero = 3},
                     {.tensor = 4},
                     {.pipeline = 3},
                     {},
                     {.data = 2, .pipeline = 2, .zero = 2}};
  int number = 0;
  for (const Mesh& first : from) {
    for (const Mesh& second : to) {
      if (first.pipeline == 1 && second.pipeline == 1) continue;
      SCOPED_TRACE(first.text() + " to " + second.text());
      const std::string dir = "moved" + std::to_string(number++);
      run(dir, first, 6);
      run(dir, second, 12);
      expect_near(curve(dir).losses, curve("whole").losses, 1e-5);
      expect_near(curve(dir).norms, curve("whole").norms, 1e-4);
    }
  }
}

TEST_F(RunPipeline, ModelsOfAPipelineAreGeneratedFromAndExportedWhole) {
  run("one", {}, 2);
  run("mesh", {.pipeline = 3}, 2);
  const auto ops = make_reference_ops();
  const nn::Weights a = load_weights(open_model(folder / "one", {}), DType::kF32, *ops);
  const nn::Weights b = load_weights(open_model(folder / "mesh", {}), DType::kF32, *ops);
  const auto want = a.buffer().as<const float>();
  const auto got = b.buffer().as<const float>();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
  export_hugging_face(folder / "mesh", folder / "exported", {}, {});
  EXPECT_TRUE(fs::exists(folder / "exported" / "config.json"));
}

TEST_F(RunPipeline, StagesSendAnActivationAndAGradientForEveryMicroBatch) {
  run("run", {.pipeline = 3}, 3, kLlama);
  int steps = 0;
  read_metrics(folder / "run", [&](const StepRecord& record) {
    ASSERT_TRUE(record.workers);
    // Two boundaries, two directions, four micro-batches of [2 x 8 tokens, 32].
    EXPECT_EQ(record.workers->bytes_sent, 2 * 2 * 4 * (2 * 8) * 32 * sizeof(float));
    ++steps;
  });
  EXPECT_EQ(steps, 3);
}

// A step that is skipped is skipped by all stages, and f16 then continues with a smaller scale.
TEST_F(RunPipeline, AnOverflowSkipsTheStepOnAllStages) {
  const Settings f16 = with(kLlama, {"train.precision=f16", "loss_scale.initial=1e9"});
  run("one", {}, 12, f16);
  run("mesh", {.pipeline = 2}, 12, f16);
  int skipped = 0;
  read_metrics(folder / "mesh",
               [&](const StepRecord& record) { skipped += record.metrics.skipped ? 1 : 0; });
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(curve("mesh").losses, curve("one").losses);
}

TEST_F(RunPipeline, TheSourceOfNaNIsNamed) {
  const std::string error =
      error_of({.pipeline = 2}, with(kLlama, {"optimizer.learning_rate=1e30", "train.steps=20"}));
  EXPECT_THAT(error, HasSubstr("block "));
  EXPECT_THAT(error, HasSubstr("(at rank "));
}

TEST_F(RunPipeline, WhatCannotBePipelinedIsRefused) {
  const auto of = [](const std::string& setting) { return Settings{setting}; };
  EXPECT_THAT(error_of({.pipeline = 2}, of("parallel.pipeline=3")),
              HasSubstr("parallel.pipeline = 3 makes workers of 3 ranks, which do not divide the 2 "
                        "ranks of this job; take parallel.pipeline = 1, 2, or start a multiple"));
  EXPECT_THAT(error_of({.pipeline = 5}, {}), HasSubstr("take parallel.pipeline = 4 or less"));
  EXPECT_THAT(
      error_of({.pipeline = 2, .schedule = "interleaved"}, of("parallel.pipeline_chunks=3")),
      HasSubstr("with parallel.pipeline_chunks = 3 needs a model of 6 blocks"));
  EXPECT_THAT(error_of({.data = 3, .pipeline = 2}, {}),
              HasSubstr("take train.global_batch_size = 6 or 12"));
  EXPECT_THAT(error_of({.pipeline = 2, .schedule = "gpip"}, {}), HasSubstr("did you mean gpipe?"));
  EXPECT_THAT(error_of({.data = 2, .pipeline = 2, .zero = 2, .schedule = "zb_h1"}, {}),
              HasSubstr("splits backward is not supported with sharded gradients"));
  EXPECT_THAT(error_of({.pipeline = 2, .schedule = "zb_h1"}, of("parallel.reduction=tree")),
              HasSubstr("parallel.reduction = \"tree\" together with"));
  for (const std::string of_tier : {"gradients", "parameters", "activations"}) {
    EXPECT_THAT(
        error_of({.pipeline = 2}, {"offload.optimizer=host", "offload." + of_tier + "=host"}),
        HasSubstr("offload." + of_tier + " = \"host\" is not supported with parallel.pipe"));
  }
  EXPECT_THAT(error_of({.pipeline = 2}, of("memory.auto=true")), HasSubstr("memory.auto = true"));
  EXPECT_THAT(error_of({.pipeline = 2}, of("train.recompute=auto")),
              HasSubstr("train.recompute = \"auto\""));
  EXPECT_THAT(error_of({.data = 2, .pipeline = 2}, of("parallel.compression=int8")),
              HasSubstr("parallel.compression = \"int8\" is not supported with parallel.pipeline"));
  EXPECT_THAT(error_of({.data = 2, .pipeline = 2}, of("parallel.strategy=parameter_server")),
              HasSubstr("parallel.strategy = \"parameter_server\""));
  EXPECT_THAT(
      error_of({.data = 2, .pipeline = 2, .zero = 3}, of("parallel.quantized_weights=int8")),
      HasSubstr("parallel.quantized_weights = \"int8\""));
  EXPECT_FALSE(fs::exists(folder / "refused" / "checkpoints"));
}

}  // namespace
}  // namespace lockstep::train::run_pipeline_test
