// The workers of a run choose alike, by the memory that the poorest of them has.
#include "lockstep/train/run/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/comm/native/threads.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train::run_memory_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kWorkers = 3;

struct Settled {
  std::vector<TrainOptions> options;  // of each worker
  std::vector<std::string> said;
};

// The last worker has `least` bytes free, the others more.
Settled settle(const std::vector<std::string>& settings, std::size_t least) {
  Settled all{std::vector<TrainOptions>(kWorkers), std::vector<std::string>(kWorkers)};
  run_threads(kWorkers, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    TrainOptions& options = all.options[rank];
    Config config;
    bind(config, options);
    for (const char* setting :
         {"model.layers=4", "model.hidden=32", "model.heads=2", "model.vocabulary=53",
          "train.seq_len=33", "train.global_batch_size=12"}) {
      config.set(setting);
    }
    for (const std::string& setting : settings) config.set(setting);
    options.batch.workers = kWorkers;
    options.memory_limit = world.rank() + 1 == kWorkers ? least : least * 3;
    const auto ops = make_reference_ops();
    MemoryDecision decision =
        decide_by_memory(options, open_settings(config), *ops, RunGroup(&world));
    options = std::move(decision.options);
    all.said[rank] = std::move(decision.text);
  });
  return all;
}

std::size_t bytes_alone() {
  const Settled wide = settle({"memory.auto=true"}, std::size_t{1} << 40);
  const auto ops = make_reference_ops();
  return plan_run(wide.options[0], *ops).bytes();
}

TEST(RunMemory, IsSettledAlikeAtAllWorkers) {
  const std::size_t budget = bytes_alone() / 2;
  const Settled settled = settle({"memory.auto=true"}, budget);
  const auto ops = make_reference_ops();
  for (const TrainOptions& each : settled.options) {
    EXPECT_EQ(each.parallel.zero, settled.options[0].parallel.zero);
    EXPECT_EQ(each.recompute_of_blocks, settled.options[0].recompute_of_blocks);
    EXPECT_EQ(solved(each.batch).micro, solved(settled.options[0].batch).micro);
    EXPECT_EQ(solved(each.batch).sequences, 12);
    EXPECT_LE(plan_run(each, *ops).bytes(), budget) << "that of the poorest worker";
  }
  EXPECT_THAT(settled.said[0], HasSubstr("memory.auto: parallel.zero = "));
  EXPECT_THAT(settled.said[1], IsEmpty()) << "the leader tells";
}

TEST(RunMemory, WhatIsSetStaysAndWithoutAutoNothingIsChosen) {
  const std::size_t budget = bytes_alone() / 2;
  const Settled set =
      settle({"memory.auto=true", "parallel.zero=0", "train.recompute=none"}, budget);
  for (const TrainOptions& each : set.options) {
    EXPECT_EQ(each.parallel.zero, 0);
    EXPECT_EQ(each.recompute, RecomputeChoice::kNone);
    EXPECT_LT(solved(each.batch).micro, 4);
  }
  EXPECT_THAT(settle({}, budget).said, Each(""));
  const Settled again = settle({"train.recompute=auto"}, budget);
  EXPECT_EQ(again.options[0].parallel.zero, 0);
  EXPECT_EQ(again.options[1].recompute_of_blocks, again.options[0].recompute_of_blocks);
  EXPECT_THAT(again.said[0], HasSubstr("train.recompute = \"auto\": recomputes "));
}

TEST(RunMemory, KeepsHowTransfersGo) {
  const Settled settled =
      settle({"train.recompute=auto", "offload.optimizer=host", "offload.overlap=false"},
             std::size_t{1} << 40);
  for (const TrainOptions& each : settled.options) {
    EXPECT_EQ(each.offload.tiers.optimizer, Tier::kHost);
    EXPECT_FALSE(each.offload.tiers.overlaps);
  }
}

TEST(RunMemory, WhereNothingFitsAllWorkersAreToldBeforeTheyBegin) {
  EXPECT_THROW(settle({"memory.auto=true"}, 1000), Error);
}

}  // namespace
}  // namespace lockstep::train::run_memory_test
