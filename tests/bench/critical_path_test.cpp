// The least time of a step with states on the host, by hand.
#include "lockstep/bench/offload/critical_path.h"

#include <gtest/gtest.h>

#include "lockstep/train/memory/run_plan.h"

namespace lockstep::bench::critical_path_test {
namespace {

// GPT-2 1558M on an H200: 4 micro-batches of 0.29 s, 6.2 GB of gradients, 3.1 GB of parameters.
StepParts parts_of_gpt2() {
  return {.micro_batches = 4,
          .compute_seconds = 0.29,
          .forward_seconds = 0.09,
          .update_seconds = 0.40,
          .down_rate = 50e9,
          .up_rate = 50e9,
          .micro_batch = {},
          .update = {.down = 6e9, .up = 3e9}};
}

TEST(CriticalPath, HidesAForwardOfTheUpdate) {
  StepParts parts = parts_of_gpt2();
  EXPECT_DOUBLE_EQ(critical_path(parts), 4 * 0.29 + 0.40 - 0.09);
  parts.overlaps = false;
  EXPECT_DOUBLE_EQ(critical_path(parts), 4 * 0.29 + 0.40);
  parts.overlaps = true;
  parts.update_seconds = 0.05;
  parts.update = {};
  EXPECT_DOUBLE_EQ(critical_path(parts), 4 * 0.29) << "it is hidden";
}

TEST(CriticalPath, TakesTheLongestOfComputeAndEachDirection) {
  StepParts parts = parts_of_gpt2();
  parts.update.down = 30e9;
  EXPECT_DOUBLE_EQ(critical_path(parts), 4 * 0.29 + 0.60 - 0.09);
  parts.micro_batch = {.down = 20e9, .up = 25e9};
  EXPECT_DOUBLE_EQ(critical_path(parts), 4 * 0.50 + 0.60 - 0.09);
}

TEST(CriticalPath, OfADelayedUpdateIsTheLongestPart) {
  StepParts parts = parts_of_gpt2();
  parts.delayed = true;
  EXPECT_DOUBLE_EQ(critical_path(parts), 4 * 0.29);
  parts.update_seconds = 1.5;
  EXPECT_DOUBLE_EQ(critical_path(parts), 1.5);
  parts.micro_batch.down = 20e9;
  EXPECT_DOUBLE_EQ(critical_path(parts), (4 * 20e9 + 6e9) / 50e9);
}

nn::MemoryPlan plan_of(const nn::Tiers& tiers, plan::Precision precision) {
  train::TrainOptions options;
  options.model.layers = 2;
  options.model.hidden = 32;
  options.model.heads = 2;
  options.model.vocabulary = 64;
  options.model.positions = 16;
  options.batch = {.sequence = 16, .micro = 1, .accumulation = 4};
  options.precision = precision;
  options.offload.tiers = tiers;
  const auto ops = make_cpu_ops(1);
  return train::plan_run(options, *ops);
}

TEST(CriticalPath, CountsWhatCrossesTheBus) {
  constexpr Tier kHost = Tier::kHost;
  const nn::MemoryPlan states = plan_of({.optimizer = kHost}, plan::Precision::kBf16);
  const auto elements = static_cast<double>(states.flat.elements());
  EXPECT_EQ(bytes_of_update(states).down, 4 * elements);
  EXPECT_EQ(bytes_of_update(states).up, 2 * elements);
  EXPECT_EQ(bytes_of_micro_batch(states, 4).down, 0);
  EXPECT_EQ(bytes_of_micro_batch(states, 4).up, 0);

  // The parameters are the master copy.
  const nn::MemoryPlan whole = plan_of({.optimizer = kHost}, plan::Precision::kF32);
  EXPECT_EQ(bytes_of_update(whole).down, 8 * elements);
  EXPECT_EQ(bytes_of_update(whole).up, 4 * elements);

  const nn::MemoryPlan gradients =
      plan_of({.optimizer = kHost, .gradients = kHost}, plan::Precision::kBf16);
  EXPECT_EQ(bytes_of_update(gradients).down, 0);
  EXPECT_EQ(bytes_of_micro_batch(gradients, 4).down, 4 * elements);
  EXPECT_EQ(bytes_of_micro_batch(gradients, 4).up, 3 * elements);

  const nn::MemoryPlan parameters =
      plan_of({.optimizer = kHost, .parameters = kHost}, plan::Precision::kBf16);
  EXPECT_EQ(bytes_of_update(parameters).up, 0);
  double gathered = 0;
  for (const nn::Gather& gather : parameters.gathers) {
    gathered += 2 * static_cast<double>(parameters.flat.range(gather.unit).elements);
  }
  EXPECT_GT(gathered, 2 * elements);
  EXPECT_EQ(bytes_of_micro_batch(parameters, 4).up, gathered);

  EXPECT_EQ(bytes_of_update(plan_of({}, plan::Precision::kBf16)).down, 0);
  const nn::MemoryPlan kept = plan_of({.activations = kHost}, plan::Precision::kBf16);
  double absent = 0;
  for (const nn::Absence& absence : kept.absences) {
    absent += static_cast<double>(kept.host_requests[absence.away].bytes);
  }
  EXPECT_GT(absent, 0);
  EXPECT_EQ(bytes_of_micro_batch(kept, 1).down, absent);
  EXPECT_EQ(bytes_of_micro_batch(kept, 1).up, absent);
}

}  // namespace
}  // namespace lockstep::bench::critical_path_test
