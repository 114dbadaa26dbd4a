// Whole runs whose experts expert groups divide, with data parallelism, ZeRO, tensor and context
// groups and pipelines, as threads: losses and gradient norms are those of one worker, and
// checkpoints move between meshes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::run_expert_test {
namespace {

using ::testing::HasSubstr;

struct Mesh {
  int data = 1;
  int expert = 1;
  int zero = 0;
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  bool sequence = false;
  int ranks() const { return data * expert * tensor * pipeline * context; }
  std::string text() const {
    return "data " + std::to_string(data) + ", expert " + std::to_string(expert) + ", ZeRO " +
           std::to_string(zero) + ", tensor " + std::to_string(tensor) + ", pipeline " +
           std::to_string(pipeline) + ", context " + std::to_string(context) +
           (sequence ? ", sequence" : "");
  }
};

class RunExpert : public ThreadRuns {
 protected:
  void run(const std::string& dir, const Mesh& mesh, int steps, const Settings& more = {}) const {
    Settings settings = {"model.family=mixtral",
                         "model.experts=12",
                         "model.feed_forward=24",
                         "model.router_loss=0.1",
                         "train.global_batch_size=24",
                         "train.micro_batch_size=2",
                         "optimizer.learning_rate=0.003",
                         "parallel.check_every=5",
                         "parallel.expert=" + std::to_string(mesh.expert),
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

constexpr Mesh kMeshes[] = {{.expert = 2},
                            {.expert = 2, .zero = 1},
                            {.expert = 2, .zero = 2},
                            {.expert = 2, .zero = 3},
                            {.expert = 4},
                            {.data = 2, .expert = 2},
                            {.data = 2, .expert = 2, .zero = 1},
                            {.data = 2, .expert = 2, .zero = 2},
                            {.data = 2, .expert = 2, .zero = 3},
                            {.expert = 2, .tensor = 2},
                            {.expert = 2, .tensor = 2, .sequence = true},
                            {.expert = 2, .pipeline = 2},
                            {.expert = 2, .context = 2},
                            {.data = 3, .expert = 2, .zero = 1},
                            {.data = 2, .expert = 3, .zero = 3},
                            {.expert = 6},
                            {.expert = 4, .zero = 2, .tensor = 2},
                            {.data = 2, .expert = 2, .zero = 1, .tensor = 2},
                            {.data = 2, .expert = 2, .zero = 3, .tensor = 2, .sequence = true},
                            {.data = 2, .expert = 2, .zero = 2, .context = 2},
                            {.data = 2, .expert = 2, .zero = 3, .pipeline = 2},
                            {.expert = 2, .zero = 1, .tensor = 2, .pipeline = 2}};

TEST_F(RunExpert, LossesAndNormsOfEveryMeshAreThoseOfOneWorker) {
  run("one", {}, 20);
  const Curve alone = curve("one");
  ASSERT_EQ(alone.losses.size(), 20u);
  ASSERT_EQ(alone.validations.size(), 2u);
  int number = 0;
  for (const Mesh& mesh : kMeshes) {
    SCOPED_TRACE(mesh.text());
    const std::string dir = "mesh" + std::to_string(number++);
    run(dir, mesh, 20);
    expect_near(curve(dir), alone, 1e-5);
  }
}

// Schedules whose stages interleave micro-batches, and weight gradients that come later.
TEST_F(RunExpert, EveryPipelineScheduleFollowsOneWorker) {
  run("one", {}, 10);
  for (const std::string schedule : {"gpipe", "interleaved", "zb_h1", "zb_h2"}) {
    SCOPED_TRACE(schedule);
    run(schedule, {.data = 2, .expert = 2, .zero = 1, .pipeline = 2}, 10,
        {"parallel.pipeline_schedule=" + schedule});
    expect_near(curve(schedule), curve("one"), 1e-5);
  }
}

TEST_F(RunExpert, RecomputationGivesTheBitsOfARunWithoutIt) {
  const Mesh mesh{.data = 2, .expert = 2, .zero = 2};
  run("none", mesh, 6);
  for (const std::string recompute : {"selective", "full"}) {
    run(recompute, mesh, 6, {"train.recompute=" + recompute});
    EXPECT_EQ(curve(recompute).losses, curve("none").losses);
    EXPECT_EQ(curve(recompute).norms, curve("none").norms);
  }
}

TEST_F(RunExpert, HalfPrecisionFollowsOneWorker) {
  for (const std::string precision : {"bf16", "f16"}) {
    const Settings settings = {"train.precision=" + precision};
    run("one-" + precision, {}, 6, settings);
    run(precision, {.data = 2, .expert = 2, .zero = 2}, 6, settings);
    expect_near(curve(precision).losses, curve("one-" + precision).losses, 0.01);
  }
}

TEST_F(RunExpert, SgdAndWeightDecayFollowOneWorker) {
  for (const Settings& settings :
       {Settings{"optimizer.kind=sgd", "optimizer.momentum=0.9"},
        Settings{"optimizer.weight_decay=0.3", "optimizer.max_grad_norm=0.05"}}) {
    run("one" + settings[0], {}, 10, settings);
    run("mesh" + settings[0], {.data = 2, .expert = 2, .zero = 1}, 10, settings);
    expect_near(curve("mesh" + settings[0]), curve("one" + settings[0]), 1e-5);
  }
}

// Validations drop the same rows, too.
TEST_F(RunExpert, WithACapacityFollowsOneWorker) {
  const Settings settings = {"train.expert_capacity=0.8", "train.validate_every=5"};
  run("one", {}, 10, settings);
  run("dropless", {}, 10);
  EXPECT_NE(curve("one").losses, curve("dropless").losses);
  int number = 0;
  for (const Mesh& mesh : {Mesh{.expert = 4}, Mesh{.data = 2, .expert = 2, .zero = 3},
                           Mesh{.expert = 2, .tensor = 2, .pipeline = 2}}) {
    SCOPED_TRACE(mesh.text());
    const std::string dir = "mesh" + std::to_string(number++);
    run(dir, mesh, 10, settings);
    expect_near(curve(dir), curve("one"), 1e-5);
  }
}

TEST_F(RunExpert, WithoutOverlapFollowsOneWorker) {
  run("one", {}, 6);
  for (const int zero : {0, 2}) {
    const std::string dir = "zero" + std::to_string(zero);
    run(dir, {.data = 2, .expert = 2, .zero = zero}, 6,
        {"parallel.overlap=false", "parallel.bucket_mb=0.01", "parallel.first_bucket_mb=0.001"});
    expect_near(curve(dir), curve("one"), 1e-5);
  }
}

TEST_F(RunExpert, ARunIsTheSameToTheBit) {
  const Settings settings = {"model.dropout=0.1"};
  for (const int zero : {0, 3}) {
    const std::string which = std::to_string(zero);
    run("first" + which, {.data = 2, .expert = 2, .zero = zero}, 6, settings);
    run("second" + which, {.data = 2, .expert = 2, .zero = zero}, 6, settings);
    EXPECT_EQ(curve("first" + which).losses, curve("second" + which).losses);
    EXPECT_EQ(curve("first" + which).norms, curve("second" + which).norms);
  }
}

TEST_F(RunExpert, CheckpointsMoveBetweenMeshes) {
  run("whole", {}, 12);
  const Curve whole = curve("whole");
  const Mesh meshes[] = {{},
                         {.tensor = 2},
                         {.expert = 2},
                         {.expert = 4, .zero = 1},
                         {.data = 2, .expert = 2, .zero = 3},
                         {.expert = 2, .tensor = 2, .pipeline = 2}};
  int number = 0;
  constexpr std::size_t kCount = std::size(meshes);
  for (std::size_t i = 0; i < kCount; ++i) {
    for (const std::size_t distance : {1, 3}) {
      const Mesh& first = meshes[i];
      const Mesh& second = meshes[(i + distance) % kCount];
      if (first.expert == 1 && second.expert == 1) continue;
      SCOPED_TRACE(first.text() + " to " + second.text());
      const std::string dir = "moved" + std::to_string(number++);
      run(dir, first, 6);
      run(dir, second, 12);
      expect_near(curve(dir).losses, whole.losses, 1e-5);
      expect_near(curve(dir).norms, whole.norms, 1e-4);
    }
  }
}

// Numbers of batches that four ranks do not divide: in the last round some have none and take part.
TEST_F(RunExpert, AValidationOfAnyNumberOfBatchesIsThatOfOneWorker) {
  for (const std::string fraction : {"0.005", "0.007", "0.02"}) {
    SCOPED_TRACE(fraction);
    const Settings settings = {"data.validation_fraction=" + fraction, "train.validate_every=2",
                               "train.validate_batches=0"};
    run("one" + fraction, {}, 2, settings);
    for (const int zero : {0, 3}) {
      const std::string dir = "mesh" + fraction + std::to_string(zero);
      run(dir, {.data = 2, .expert = 2, .zero = zero}, 2, settings);
      expect_near(curve(dir), curve("one" + fraction), 1e-5);
    }
  }
}

TEST_F(RunExpert, NonFiniteValuesAreFound) {
  EXPECT_THAT(error_of({.data = 2, .expert = 2}, {"optimizer.learning_rate=1e38"}),
              HasSubstr("infin"));
}

// Both ranks search the one micro-batch that there is.
TEST_F(RunExpert, ANaNInAValidationIsFound) {
  const Settings settings = {"optimizer.learning_rate=1e38", "train.validate_every=1",
                             "data.validation_fraction=0.002", "train.validate_batches=0",
                             "comm.timeout=20s"};
  try {
    run("nan", {.expert = 2}, 1, settings);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("validation"));
  }
}

// What a rank uses is what was planned: for the case that all tokens of the group come to it.
TEST(ExpertMemory, RanksUseWhatWasPlanned) {
  struct Case {
    RecomputeChoice recompute;
    double capacity = 0;
    nn::Tiers tiers = {};
  };
  const Case cases[] = {
      {RecomputeChoice::kNone},
      {RecomputeChoice::kNone, 1.2},
      {RecomputeChoice::kSelective},
      {RecomputeChoice::kFull},
      {RecomputeChoice::kNone, 0, {.optimizer = Tier::kHost, .gradients = Tier::kHost}},
      {RecomputeChoice::kSelective,
       0,
       {.optimizer = Tier::kFile, .parameters = Tier::kFile, .activations = Tier::kHost}}};
  for (const auto& [recompute, capacity, tiers] : cases) {
    run_threads(
        2, [&, recompute = recompute, capacity = capacity, tiers = tiers](Communicator& world) {
          nn::ExpertAxis axis(world);
          TrainOptions options;
          options.model = {.family = ModelFamily::kMixtral,
                           .layers = 2,
                           .hidden = 32,
                           .heads = 4,
                           .vocabulary = 40,
                           .positions = 16,
                           .experts = 4};
          options.batch = {.sequence = 16, .micro = 2, .accumulation = 2};
          options.precision = plan::Precision::kBf16;
          options.recompute = recompute;
          options.expert_capacity = capacity;
          options.offload.tiers = tiers;
          options.threads = 1;
          options.parallel.expert = 2;
          options.parallel.expert_rank = world.rank();
          const auto ops = make_cpu_ops(1);
          const nn::MemoryPlan plan = plan_run(options, *ops);
          Trainer trainer(options, *ops);
          trainer.set_axes(nullptr, nullptr, nullptr, &axis);
          std::vector<std::int32_t> tokens(2 * 16);
          for (std::size_t i = 0; i < tokens.size(); ++i)
            tokens[i] = static_cast<std::int32_t>(i % 40);
          const Tensor ids = tensor_of(std::span(tokens), {2, 16});
          const std::vector<nn::Batch> batches(
              2, nn::Batch{.shape = {.batch = 2, .sequence = 16}, .tokens = ids, .targets = ids});
          EXPECT_GT(trainer.step(batches).loss, 0);
          EXPECT_EQ(trainer.device_memory().peak(), plan.bytes(Tier::kDevice));
          EXPECT_EQ(trainer.host_memory().peak(), plan.bytes(Tier::kHost));
        });
  }
}

TEST_F(RunExpert, WhatCannotBeDividedIsRefused) {
  EXPECT_THAT(error_of({.expert = 5}, {"train.global_batch_size=5", "train.micro_batch_size=1"}),
              HasSubstr("parallel.expert is 5, which does not divide 12 experts; 4 and 6 do"));
  EXPECT_THAT(error_of({.data = 3}, {"parallel.expert=2"}),
              HasSubstr("parallel.expert = 2 makes groups of 2 ranks, which do not divide the 3 "
                        "ranks of this job; take parallel.expert = 1, 3"));
  EXPECT_THAT(error_of({.expert = 2}, {"model.family=llama", "model.experts=0"}),
              HasSubstr("take model.family = \"mixtral\""));
  EXPECT_THAT(error_of({.expert = 2}, {"train.global_batch_size=5", "train.micro_batch_size=1"}),
              HasSubstr("unequal shares, which parallel.expert = 2 does not support; take "
                        "train.global_batch_size = 4 or 6"));
  const std::pair<const char*, const char*> refused[] = {
      {"parallel.reduction=tree", "parallel.reduction = \"tree\" is not supported with"},
      {"parallel.strategy=parameter_server", "parameter_server"},
      {"parallel.compression=fp16", "parallel.compression"},
      {"memory.auto=true", "memory.auto = true is not supported with parallel.expert = 2"},
      {"train.recompute=auto", "train.recompute = \"auto\" is not supported with"}};
  for (const auto& [setting, text] : refused) {
    EXPECT_THAT(error_of({.expert = 2}, {setting}), HasSubstr(text));
  }
  EXPECT_THAT(error_of({.expert = 2, .zero = 1}, {"parallel.partition=layer"}),
              HasSubstr("parallel.partition = \"layer\" is not supported with"));
  EXPECT_THAT(error_of({.expert = 2, .zero = 3}, {"parallel.quantized_weights=int8"}),
              HasSubstr("parallel.quantized_weights"));
  EXPECT_FALSE(std::filesystem::exists(folder / "refused" / "checkpoints"));
}

}  // namespace
}  // namespace lockstep::train::run_expert_test
