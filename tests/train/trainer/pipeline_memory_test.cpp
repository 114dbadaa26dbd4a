// The memory of pipeline stages: planned to the byte, and as many micro-batches as the schedule
// holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/ops/ops.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {
namespace {

constexpr int kMicroBatches = 6;

TrainOptions staged_options(const std::string& schedule, int stages) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kLlama,
                   .layers = 6,
                   .hidden = 32,
                   .heads = 4,
                   .vocabulary = 40,
                   .positions = 16};
  options.batch = {.sequence = 16, .micro = 2, .accumulation = kMicroBatches};
  options.precision = plan::Precision::kF32;
  options.recompute = RecomputeChoice::kNone;
  options.threads = 1;
  options.parallel.pipeline = stages;
  options.parallel.pipeline_schedule = schedule;
  if (schedule == "terapipe") {
    options.batch.micro = 1;
    options.parallel.pipeline_slices = 3;
  }
  return options;
}

std::vector<nn::MemoryPlan> plans_of(const std::string& schedule, int stages) {
  const auto ops = make_reference_ops();
  std::vector<nn::MemoryPlan> plans;
  for (int stage = 0; stage < stages; ++stage) {
    TrainOptions options = staged_options(schedule, stages);
    options.parallel.stage = stage;
    plans.push_back(plan_run(options, *ops));
  }
  return plans;
}

std::size_t activations_of(const nn::MemoryPlan& plan) {
  std::size_t bytes = 0;
  for (const GroupBytes& group : plan.by_class()) {
    if (group.group.starts_with("activations layer")) bytes += group.bytes;
  }
  return bytes;
}

// What one slot of each layer of a stage keeps, from the blocks' own declarations.
std::size_t kept_by(const nn::MemoryPlan& plan) {
  std::size_t bytes = 0;
  for (const nn::BlockSpec& spec : plan.specs) {
    bool is_layer = false;
    for (const nn::ParameterSpec& one : spec.parameters) is_layer |= one.name.starts_with("mlp");
    for (const nn::TensorSpec& tensor : spec.tensors) {
      const bool kept = tensor.life == nn::Life::kKept || tensor.life == nn::Life::kRestored;
      if (is_layer && kept) {
        bytes += padded_bytes({.name = tensor.name,
                               .group = "",
                               .bytes = Tensor::bytes_of(tensor.dtype, tensor.shape)});
      }
    }
  }
  return bytes;
}

TEST(PipelineMemory, ActivationsAreThoseOfTheMicroBatchesInFlight) {
  constexpr int kStages = 3;
  const auto gpipe = plans_of("gpipe", kStages);
  const auto one_f_one_b = plans_of("1f1b", kStages);
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    SCOPED_TRACE(stage);
    ASSERT_GT(kept_by(gpipe[stage]), 0u);
    EXPECT_EQ(activations_of(gpipe[stage]), kMicroBatches * kept_by(gpipe[stage]));
    if (stage + 1 == kStages) continue;  // one at a time: lifetimes are exact, and less is enough
    EXPECT_EQ(activations_of(one_f_one_b[stage]), (kStages - stage) * kept_by(gpipe[stage]));
  }
  EXPECT_LE(activations_of(one_f_one_b.back()), kept_by(gpipe.back()));
}

void expect_planned(const std::string& schedule, const nn::Tiers& tiers) {
  constexpr int kStages = 3;
  run_threads(kStages, [&](Communicator& world) {
    nn::PipelineAxis axis(world);
    const auto late = world.split(0, world.rank());
    nn::PipelineAxis late_axis(*late);
    TrainOptions options = staged_options(schedule, kStages);
    options.offload.tiers = tiers;
    options.parallel.stage = world.rank();
    const auto ops = make_reference_ops();
    const nn::MemoryPlan plan = plan_run(options, *ops);
    Trainer trainer(options, *ops);
    trainer.set_axes(nullptr, &axis);
    trainer.set_late_axes({.pipeline = &late_axis});
    const int micro = options.batch.micro;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(micro) * 16);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 40);
    const Tensor ids = tensor_of(std::span(tokens), {micro, 16});
    const std::vector<nn::Batch> batches(
        kMicroBatches,
        nn::Batch{.shape = {.batch = micro, .sequence = 16}, .tokens = ids, .targets = ids});
    SCOPED_TRACE(schedule + ", stage " + std::to_string(world.rank()));
    EXPECT_GT(trainer.step(batches).loss, 0);
    if (trainer.is_late()) {  // and of steps that follow each other
      const parallel::Share share{.step = 2, .micro_batches = kMicroBatches};
      parallel::Share after = share;
      ++after.step;
      EXPECT_TRUE(trainer.step_late({batches, share}, Trainer::StepInput{batches, after})->empty());
      EXPECT_EQ(trainer.step_late({batches, after}, std::nullopt)->size(), 2u);
    }
    EXPECT_EQ(trainer.device_memory().peak(), plan.bytes(Tier::kDevice));
    EXPECT_EQ(trainer.host_memory().peak(), plan.bytes(Tier::kHost));
  });
}

TEST(PipelineMemory, StagesUseWhatWasPlanned) {
  for (const std::string schedule :
       {"sequential", "gpipe", "1f1b", "interleaved", "zb_h1", "terapipe"}) {
    for (const Tier optimizer : {Tier::kDevice, Tier::kHost, Tier::kFile}) {
      expect_planned(schedule, {.optimizer = optimizer});
    }
  }
  expect_planned("pipedream_2bw", {});
}

std::size_t bytes_of(const nn::MemoryPlan& plan, std::string_view name) {
  std::size_t bytes = 0;
  for (const Request& request : plan.requests) {
    if (request.name == name) bytes += request.bytes;
  }
  return bytes;
}

// A second version of the parameters, and the gradients of the update that is late. Activations are
// those of 1F1B: as many micro-batches are between forward and backward. The last stage has a
// second input, since the next step's first one may come before the last backward has ended.
TEST(PipelineMemory, TwoVersionsTakeTheParametersAndTheGradientsOnceMore) {
  constexpr int kStages = 3;
  const auto late = plans_of("pipedream_2bw", kStages);
  const auto now = plans_of("1f1b", kStages);
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    SCOPED_TRACE(stage);
    EXPECT_EQ(bytes_of(late[stage], "previous parameters"), bytes_of(now[stage], "parameters"));
    EXPECT_EQ(bytes_of(late[stage], "delayed gradients"), bytes_of(now[stage], "gradients"));
    EXPECT_EQ(bytes_of(now[stage], "previous parameters"), 0u);
    EXPECT_GE(activations_of(late[stage]), activations_of(now[stage]));
    EXPECT_LE(activations_of(late[stage]), (kStages - stage) * kept_by(late[stage]));
  }
}

}  // namespace
}  // namespace lockstep::train
