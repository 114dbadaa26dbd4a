// Pipelines whose messages are queued among the operations, as between GPUs of a node: every
// message ends before the next action of its stage begins, and steps have the bits of messages that
// travel beside compute.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/pipeline_axis.h"
#include "lockstep/ops/ops.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/nn/queued_group.h"

namespace lockstep::train::queued_messages_test {
namespace {

using lockstep::QueuedGroup;

constexpr int kMicroBatches = 6;
constexpr int kSteps = 3;

TrainOptions options_of(const std::string& schedule, int stages) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kLlama,
                   .layers = 6,
                   .hidden = 32,
                   .heads = 4,
                   .vocabulary = 40,
                   .positions = 16};
  options.batch = {.sequence = 16, .micro = 1, .accumulation = kMicroBatches};
  options.precision = plan::Precision::kF32;
  options.recompute = RecomputeChoice::kNone;
  options.threads = 1;
  options.parallel.pipeline = stages;
  options.parallel.pipeline_schedule = schedule;
  if (schedule == "terapipe") options.parallel.pipeline_slices = 3;
  return options;
}

struct Steps {
  std::vector<double> losses, norms;
  int queued = 0;
  int started = 0;
};

Steps train(const std::string& schedule, int stages, bool queues) {
  Steps steps;
  std::mutex mutex;
  run_threads(stages, [&](Communicator& world) {
    const auto messages = world.split(0, world.rank());
    QueuedGroup data(*messages, queues ? "cuda" : "threads");
    nn::PipelineAxis axis(world, data);
    TrainOptions options = options_of(schedule, stages);
    options.parallel.stage = world.rank();
    const auto ops = make_reference_ops();
    Trainer trainer(options, *ops);
    trainer.set_axes(nullptr, &axis);
    std::vector<std::int32_t> tokens(16 * kMicroBatches);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(random_word(1, 2, i) % 40);
    }
    const Tensor ids = tensor_of(std::span(tokens), {kMicroBatches, 16});
    std::vector<nn::Batch> batches;
    for (std::int64_t i = 0; i < kMicroBatches; ++i) {
      batches.push_back({.shape = {.batch = 1, .sequence = 16},
                         .tokens = ids.slice(i, 1),
                         .targets = ids.slice(i, 1)});
    }
    Steps mine;
    for (int i = 0; i < kSteps; ++i) {
      const StepMetrics metrics = trainer.step(batches);
      mine.losses.push_back(metrics.loss);
      mine.norms.push_back(metrics.gradient_norm);
    }
    const std::lock_guard lock(mutex);
    steps.losses = mine.losses;
    steps.norms = mine.norms;
    steps.queued += data.calls;
    steps.started += data.started;
  });
  return steps;
}

TEST(QueuedMessages, GiveTheBitsOfMessagesBesideComputeInEverySchedule) {
  for (const int stages : {2, 3}) {
    for (const std::string schedule :
         {"sequential", "gpipe", "1f1b", "interleaved", "zb_h1", "terapipe"}) {
      SCOPED_TRACE(schedule + " of " + std::to_string(stages));
      const Steps beside = train(schedule, stages, false);
      const Steps queued = train(schedule, stages, true);
      ASSERT_EQ(beside.losses.size(), static_cast<std::size_t>(kSteps));
      EXPECT_EQ(queued.losses, beside.losses);
      EXPECT_EQ(queued.norms, beside.norms);
      EXPECT_GT(beside.started, 0);
      EXPECT_EQ(queued.started, 0);
      EXPECT_EQ(queued.queued, beside.started);
    }
  }
}

}  // namespace
}  // namespace lockstep::train::queued_messages_test
