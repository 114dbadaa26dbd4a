// What the groups of a mesh take on a GPU is part of its plan.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/comm/device_communicator.h"
#include "lockstep/parallel/footprint.h"
#include "lockstep/parallel/gradients/shared_blocks.h"
#include "lockstep/parallel/strategy/communication_group.h"
#include "lockstep/parallel/strategy/device_update.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train::device_groups_test {
namespace {

TrainOptions small(const parallel::ParallelOptions& parallel) {
  TrainOptions options;
  options.model = {.layers = 4, .hidden = 64, .heads = 4, .vocabulary = 3000, .positions = 16};
  options.batch = {.sequence = 16, .micro = 2, .accumulation = 4};
  options.precision = plan::Precision::kF32;
  options.recompute = RecomputeChoice::kNone;
  options.threads = 1;
  options.parallel = parallel;
  return options;
}

// As if operations of a GPU had made it.
nn::MemoryPlan plan_on_gpu(const TrainOptions& options) {
  const auto ops = make_reference_ops();
  nn::MemoryPlan plan = plan_run(options, *ops);
  plan.outside.clear();
  plan.device = {DeviceKind::kCuda, 0};
  parallel::add_memory(options.parallel, options.optimizer, {}, plan);
  return plan;
}

std::size_t bytes_of(const nn::MemoryPlan& plan, const std::string& name) {
  std::size_t bytes = 0;
  for (const Request& request : plan.outside) {
    if (request.name == name) bytes += request.bytes;
  }
  return bytes;
}

TEST(DeviceGroups, AreInThePlanWhereThereIsOne) {
  const nn::MemoryPlan alone = plan_on_gpu(small({}));
  for (const char* group : {"tensor group", "context group", "pipeline"}) {
    EXPECT_EQ(bytes_of(alone, group), 0u) << group;
  }
  parallel::ParallelOptions parallel;
  parallel.tensor = 2;
  EXPECT_EQ(bytes_of(plan_on_gpu(small(parallel)), "tensor group"),
            device_communicator_bytes(true, false));
  parallel.pipeline = 2;
  EXPECT_EQ(bytes_of(plan_on_gpu(small(parallel)), "pipeline"),
            device_communicator_bytes(false, true));
  EXPECT_EQ(device_communicator_bytes(true, true) - device_communicator_bytes(false, false),
            kStagingBytes + kMailboxBytes);
}

// A tensor group is on one node. The workers are on two, two of them on each.
TEST(DeviceGroups, OnSeveralNodesTakeStagingMemoryForTwoLevels) {
  parallel::ParallelOptions parallel;
  parallel.tensor = 2;
  parallel.machines = 2;
  constexpr int kWorkers = 4;
  const plan::Axes workers{plan::Axis::kData, plan::Axis::kExpert, plan::Axis::kContext};
  for (int worker = 0; worker < kWorkers; ++worker) {
    const parallel::WorkerPosition position{.workers = kWorkers, .worker = worker};
    const auto bytes_on = [&](plan::Axes axes, bool is_staged) {
      return parallel::device_group_bytes(parallel, position, axes, is_staged);
    };
    EXPECT_EQ(parallel::nodes_of_group(parallel, position, workers),
              (std::vector<int>{0, 0, 1, 1}));
    EXPECT_EQ(bytes_on(plan::Axis::kTensor, true), device_communicator_bytes(true));
    EXPECT_EQ(bytes_on(workers, false), hierarchical_communicator_bytes());
    EXPECT_EQ(bytes_on(workers, true), hierarchical_communicator_bytes());
  }
  parallel.comm.device_backend = DeviceBackend::kNccl;
  EXPECT_EQ(
      parallel::device_group_bytes(parallel, {.workers = kWorkers, .worker = 1}, workers, true),
      device_communicator_bytes(true));
}

// The norm of a divided model is one over several ranks, which one graph on one GPU does not have.
TEST(DeviceGroups, OnlyAWholeModelIsUpdatedByOneGraph) {
  EXPECT_TRUE(parallel::DeviceUpdate::serves(plan_on_gpu(small({}))));
  parallel::ParallelOptions divided;
  divided.tensor = 2;
  EXPECT_FALSE(parallel::DeviceUpdate::serves(plan_on_gpu(small(divided))));
  parallel::ParallelOptions staged;
  staged.pipeline = 2;
  EXPECT_FALSE(parallel::DeviceUpdate::serves(plan_on_gpu(small(staged))));
}

// A token table that two of three stages hold has a group that adds up its gradients.
TEST(DeviceGroups, StagesThatShareABlockHaveAGroupMore) {
  for (int stage = 0; stage < 3; ++stage) {
    parallel::ParallelOptions parallel;
    parallel.pipeline = 3;
    parallel.stage = stage;
    const TrainOptions options = small(parallel);
    nn::MemoryPlan plan = plan_on_gpu(options);
    const nn::Model model = model_of(options);
    // 3,000 x 64 f32 are more than a small all-reduce.
    EXPECT_EQ(parallel::shared_block_memory(model, plan),
              stage == 1 ? 0 : device_communicator_bytes(true))
        << stage;
    plan.device = {};
    EXPECT_EQ(parallel::shared_block_memory(model, plan), 0u);
  }
}

}  // namespace
}  // namespace lockstep::train::device_groups_test
