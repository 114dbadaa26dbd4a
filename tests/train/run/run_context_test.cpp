// Whole runs whose sequences context groups divide, with data parallelism, ZeRO, tensor groups and
// pipelines, as threads: losses and gradient norms are those of one worker, and checkpoints move
// between meshes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_context_test {
namespace {

using ::testing::HasSubstr;

struct Mesh {
  int data = 1;
  int context = 1;
  int zero = 0;
  int tensor = 1;
  int pipeline = 1;
  bool sequence = false;
  int ranks() const { return data * context * tensor * pipeline; }
  std::string text() const {
    return "data " + std::to_string(data) + ", context " + std::to_string(context) + ", ZeRO " +
           std::to_string(zero) + ", tensor " + std::to_string(tensor) + ", pipeline " +
           std::to_string(pipeline) + (sequence ? ", sequence" : "");
  }
};

class RunContext : public ThreadRuns {
 protected:
  RunContext() {
    std::ofstream pairs(folder / "pairs.tsv");
    for (int i = 0; i < 200; ++i) pairs << "the fox " << i << "\tle renard " << i << "\n";
  }

  void run(const std::string& dir, const Mesh& mesh, int steps, const Settings& more = {}) const {
    Settings settings = {"model.hidden=48",
                         "model.heads=12",
                         "train.seq_len=24",
                         "optimizer.learning_rate=0.003",
                         "parallel.context=" + std::to_string(mesh.context),
                         "parallel.tensor=" + std::to_string(mesh.tensor),
                         "parallel.pipeline=" + std::to_string(mesh.pipeline),
                         "parallel.zero=" + std::to_string(mesh.zero),
                         "parallel.sequence=" + std::string(mesh.sequence ? "true" : "false")};
    settings.insert(settings.end(), more.begin(), more.end());
    run_ranks(mesh.ranks(), small_run(dir, steps, settings));
  }

  std::string error_of(const Mesh& mesh, const Settings& more = {}) const {
    try {
      run("refused", mesh, 2, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

constexpr Mesh kMeshes[] = {{.context = 2},
                            {.context = 3},
                            {.context = 4},
                            {.data = 2, .context = 2},
                            {.data = 2, .context = 2, .zero = 1},
                            {.data = 2, .context = 2, .zero = 2},
                            {.data = 2, .context = 2, .zero = 3},
                            {.context = 3, .zero = 3},
                            {.data = 3, .context = 2, .zero = 3},
                            {.context = 2, .tensor = 2},
                            {.data = 2, .context = 2, .tensor = 2, .sequence = true},
                            {.context = 2, .pipeline = 2},
                            {.context = 2, .zero = 1, .tensor = 2, .pipeline = 2}};

constexpr const char* kAttentions[] = {"heads", "ring"};

TEST_F(RunContext, LossesAndNormsOfEveryMeshAreThoseOfOneWorker) {
  int number = 0;
  for (const std::string family : {"gpt2", "llama", "bert", "mixtral", "gemma2"}) {
    Settings model = family == "gemma2" ? kCappedGemma2 : Settings{"model.family=" + family};
    model.push_back("model.kv_heads=" + std::string(family == "llama" ? "6" : "12"));
    const std::string one = "one" + std::to_string(number);
    run(one, {}, 20, model);
    const Curve alone = curve(one);
    ASSERT_EQ(alone.losses.size(), 20u);
    ASSERT_EQ(alone.validations.size(), 2u);
    for (const std::string attention : kAttentions) {
      for (const Mesh& mesh : kMeshes) {
        if (attention == "heads" && family == "llama" && mesh.context * mesh.tensor == 4) continue;
        // All of them for one family, and some for the others.
        const bool some = mesh.context == 3 || mesh.data == 3 || mesh.pipeline * mesh.tensor == 4;
        if (family != "gpt2" && !some) continue;
        SCOPED_TRACE(family + " by " + attention + ": " + mesh.text());
        const std::string dir = "mesh" + std::to_string(number++);
        Settings settings = model;
        settings.push_back("parallel.context_attention=" + attention);
        run(dir, mesh, 20, settings);
        expect_near(curve(dir), alone, 1e-5);
      }
    }
  }
}

TEST_F(RunContext, AnEncoderDecoderFollowsOneWorker) {
  int number = 0;
  for (const std::string family : {"encoder-decoder", "t5-v1.1"}) {
    const Settings model = {"model.family=" + family,
                            "data.text=", "data.pairs=" + (folder / "pairs.tsv").string(),
                            "data.tokenizer=bpe", "data.bpe_vocabulary=280"};
    run(family, {}, 20, model);
    for (const Mesh& mesh :
         {Mesh{.context = 2}, Mesh{.context = 3}, Mesh{.data = 2, .context = 2, .zero = 3},
          Mesh{.context = 2, .tensor = 2, .pipeline = 2}}) {
      SCOPED_TRACE(family + ": " + mesh.text());
      const std::string dir = "mesh" + std::to_string(number++);
      run(dir, mesh, 20, model);
      expect_near(curve(dir), curve(family), 1e-5);
    }
  }
}

TEST_F(RunContext, HalfPrecisionFollowsOneWorker) {
  for (const std::string precision : {"bf16", "f16"}) {
    const Settings settings = {"train.precision=" + precision, "model.family=llama"};
    run("one-" + precision, {}, 6, settings);
    for (const std::string attention : kAttentions) {
      const std::string dir = attention + precision;
      Settings by = settings;
      by.push_back("parallel.context_attention=" + attention);
      run(dir, {.data = 2, .context = 2, .zero = 2}, 6, by);
      expect_near(curve(dir).losses, curve("one-" + precision).losses, 0.01);
    }
  }
}

TEST_F(RunContext, ARunIsTheSameToTheBit) {
  for (const std::string attention : kAttentions) {
    const Settings settings = {"model.dropout=0.1", "parallel.context_attention=" + attention};
    run("first" + attention, {.data = 2, .context = 2, .zero = 3}, 6, settings);
    run("second" + attention, {.data = 2, .context = 2, .zero = 3}, 6, settings);
    EXPECT_EQ(curve("first" + attention).losses, curve("second" + attention).losses);
    EXPECT_EQ(curve("first" + attention).norms, curve("second" + attention).norms);
  }
}

TEST_F(RunContext, CheckpointsMoveBetweenMeshes) {
  run("whole", {}, 12);
  const Curve whole = curve("whole");
  const Mesh meshes[] = {
      {}, {.context = 3}, {.data = 2, .context = 2, .zero = 3}, {.context = 2, .tensor = 2}};
  int number = 0;
  for (const Mesh& first : meshes) {
    for (const Mesh& second : meshes) {
      if (first.context == 1 && second.context == 1) continue;
      SCOPED_TRACE(first.text() + " to " + second.text());
      const std::string dir = "moved" + std::to_string(number++);
      run(dir, first, 6);
      run(dir, second, 12);
      expect_near(curve(dir).losses, whole.losses, 1e-5);
      expect_near(curve(dir).norms, whole.norms, 1e-4);
    }
  }
}

// Five micro-batches: one context group has three of them, the other one two.
TEST_F(RunContext, WorkersWithUnequalSharesFollowOneWorkerToo) {
  const Settings settings = {"train.global_batch_size=10"};
  run("one", {}, 4, settings);
  run("mesh", {.data = 2, .context = 2, .zero = 2}, 4, settings);
  expect_near(curve("mesh"), curve("one"), 1e-5);
}

TEST_F(RunContext, NonFiniteValuesAreFound) {
  EXPECT_THAT(error_of({.data = 2, .context = 2}, {"optimizer.learning_rate=1e38"}),
              HasSubstr("infin"));
}

// Both ranks search the one micro-batch that there is.
TEST_F(RunContext, ANaNInAValidationIsFound) {
  const Settings settings = {"optimizer.learning_rate=1e38", "train.validate_every=1",
                             "train.validate_batches=1", "comm.timeout=20s"};
  try {
    run("nan", {.context = 2}, 1, settings);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("validation"));
  }
}

TEST_F(RunContext, SamplesAreWrittenDuringARun) {
  run("sampled", {.context = 2}, 2, {"sample.every=1", "sample.tokens=4", "sample.prompt=the"});
  EXPECT_EQ(curve("sampled").losses.size(), 2u);
}

// What a rank uses is what was planned.
TEST(ContextMemory, RanksUseWhatWasPlanned) {
  using parallel::ContextChoice;
  const std::pair<RecomputeChoice, ContextChoice> cases[] = {
      {RecomputeChoice::kNone, ContextChoice::kHeads},
      {RecomputeChoice::kFull, ContextChoice::kHeads},
      {RecomputeChoice::kNone, ContextChoice::kRing},
      {RecomputeChoice::kSelective, ContextChoice::kRing},
      {RecomputeChoice::kFull, ContextChoice::kRing}};
  for (const auto& [recompute, attention] : cases) {
    run_threads(2, [&](Communicator& world) {
      nn::ContextAxis axis(world);
      TrainOptions options;
      options.model = {.family = ModelFamily::kLlama,
                       .layers = 2,
                       .hidden = 32,
                       .heads = 4,
                       .vocabulary = 40,
                       .positions = 16};
      options.batch = {.sequence = 16, .micro = 2, .accumulation = 2};
      options.precision = plan::Precision::kBf16;
      options.recompute = recompute;
      options.threads = 1;
      options.parallel.context = 2;
      options.parallel.context_attention = attention;
      options.parallel.context_rank = world.rank();
      const auto ops = make_cpu_ops(1);
      const nn::MemoryPlan plan = plan_run(options, *ops);
      Trainer trainer(options, *ops);
      trainer.set_axes(nullptr, nullptr, &axis);
      std::vector<std::int32_t> tokens(2 * 8);
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 40);
      const Tensor ids = tensor_of(std::span(tokens), {2, 8});
      const std::vector<nn::Batch> batches(
          2, nn::Batch{.shape = {.batch = 2, .sequence = 8}, .tokens = ids, .targets = ids});
      EXPECT_GT(trainer.step(batches).loss, 0);
      EXPECT_EQ(trainer.device_memory().peak(), plan.bytes(Tier::kDevice));
    });
  }
}

TEST_F(RunContext, WhatCannotBeDividedIsRefused) {
  EXPECT_THAT(error_of({.context = 5}, {"parallel.context_attention=heads"}),
              HasSubstr("take parallel.context = 4 or 6, or train.seq_len = 20 or 25"));
  EXPECT_THAT(error_of({.context = 4}, {"model.kv_heads=2", "parallel.context_attention=heads"}),
              HasSubstr("12 heads and 2 key and value heads"));
  EXPECT_THAT(error_of({.context = 4}, {"train.seq_len=12"}),
              HasSubstr("parallel.context = 4 cuts sequences into 8 slices of equal length, which "
                        "sequences of 12 tokens do not have; take parallel.context = 3 or 6, or "
                        "train.seq_len = 8 or 16"));
  EXPECT_THAT(error_of({.data = 3}, {"parallel.context=2"}),
              HasSubstr("parallel.context = 2 makes groups of 2 ranks, which do not divide the 3 "
                        "ranks of this job; take parallel.context = 1, 3"));
  EXPECT_THAT(error_of({}, {"parallel.context=2"}), HasSubstr("do not divide the 1 rank"));
  EXPECT_THAT(error_of({.context = 2}, {"parallel.reduction=tree"}),
              HasSubstr("parallel.reduction = \"tree\" is not supported with parallel.context"));
  EXPECT_THAT(error_of({.context = 2}, {"parallel.strategy=parameter_server"}),
              HasSubstr("parameter_server"));
  EXPECT_THAT(error_of({.context = 2}, {"model.family=encoder-decoder", "data.text=",
                                        "data.pairs=" + (folder / "pairs.tsv").string(),
                                        "parallel.context_attention=ring"}),
              HasSubstr("take \"heads\""));
  EXPECT_FALSE(std::filesystem::exists(folder / "refused" / "checkpoints"));
}

}  // namespace
}  // namespace lockstep::train::run_context_test
