// Shards of workers in each other's memory: what is where, how much memory it takes, and after
// which step a run continues with what is left.
#include "lockstep/train/run/shard_mirror.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrainOptions mirrored_options(int zero, int workers) {
  TrainOptions options;
  options.model = {.family = ModelFamily::kGpt2,
                   .layers = 2,
                   .hidden = 16,
                   .heads = 2,
                   .vocabulary = 31,
                   .positions = 8};
  options.batch = {.sequence = 8, .sequences = 12, .micro = 1, .workers = workers};
  options.precision = plan::Precision::kBf16;
  options.parallel.zero = zero;
  options.survive.mirror = true;
  return options;
}

std::vector<std::byte> packed(nn::Replica& replica) {
  std::vector<std::byte> bytes(packed_bytes(replica));
  pack_states(replica, bytes);
  return bytes;
}

std::vector<std::byte> first_bytes(const Buffer& buffer, std::size_t bytes) {
  return {buffer.data(), buffer.data() + bytes};
}

TEST(MirrorHolders, AreTheNextRanksOfARing) {
  EXPECT_THAT(mirror_holders(std::vector{0, 0, 0, 0}), ElementsAre(1, 2, 3, 0));
}

TEST(MirrorHolders, AreOnOtherNodes) {
  EXPECT_THAT(mirror_holders(std::vector{0, 0, 1, 1}), ElementsAre(2, 3, 1, 0));
  for (const auto& machines : {std::vector{0, 0, 1, 1}, std::vector{0, 0, 0, 1, 1, 1},
                               std::vector{0, 1, 2}, std::vector{0, 0, 1, 1, 2, 2}}) {
    const std::vector<int> holders = mirror_holders(machines);
    for (std::size_t i = 0; i < machines.size(); ++i) {
      EXPECT_NE(machines[static_cast<std::size_t>(holders[i])], machines[i]);
    }
  }
}

TEST(ShardMirror, HoldsTheWardsShardAfterEveryStep) {
  for (const int zero : {1, 2, 3}) {
    for (const int nodes : {1, 2}) {
      CommOptions comm = comm_options();
      comm.emulated_nodes = nodes;
      constexpr int kWorkers = 4;
      std::mutex mutex;
      std::vector<std::vector<std::byte>> own(kWorkers);
      std::vector<KeptShards> kept(kWorkers);
      TrainOptions options = mirrored_options(zero, kWorkers);
      options.parallel.machines = nodes;
      run_workers(
          options,
          [&](Trainer& trainer, Communicator* others) {
            trainer.start();
            ShardMirror mirror(*others, trainer);
            trainer.set_before_update([&] { mirror.wait(); });
            run_steps(trainer, 5,
                      [&](const StepMetrics&) { mirror.begin(*trainer.last_settled()); });
            mirror.wait();
            const auto me = static_cast<std::size_t>(others->rank());
            const std::lock_guard lock(mutex);
            own[me] = packed(trainer.replica());
            kept[me] = mirror.take(trainer.last_settled());
          },
          comm);
      for (const KeptShards& one : kept) {
        ASSERT_EQ(one.mirrored.size(), 2u);
        const auto& ward = own[static_cast<std::size_t>(one.ward)];
        EXPECT_EQ(one.mirrored[0].state.steps + one.mirrored[1].state.steps, 9);
        const ShardVersion& newest = one.mirrored[one.mirrored[0].state.steps == 5 ? 0 : 1];
        EXPECT_EQ(first_bytes(newest.bytes, ward.size()), ward) << zero << " " << nodes;
        ASSERT_TRUE(newest.metrics);
        EXPECT_EQ(newest.metrics->step, 5);
      }
    }
  }
}

TEST(ShardMirror, TakesTheMemoryThatThePlanHas) {
  for (const int workers : {2, 3}) {
    for (const bool adam : {true, false}) {
      TrainOptions options = mirrored_options(3, workers);
      options.optimizer.kind = adam ? optim::OptimizerKind::kAdamW : optim::OptimizerKind::kSgd;
      TrainOptions without = options;
      without.survive.mirror = false;
      run_workers(options, [&](Trainer& trainer, Communicator* others) {
        trainer.start();
        const std::size_t before = memory_in_use(Device{});
        others->barrier();
        ShardMirror mirror(*others, trainer);
        others->barrier();
        std::size_t planned = 0;
        for (const Request& request : trainer.replica().plan().outside) {
          if (request.group == "mirror") planned += request.bytes;
        }
        EXPECT_EQ(mirror.bytes(), planned);
        // All workers are threads here.
        EXPECT_EQ(memory_in_use(Device{}) - before, planned * static_cast<std::size_t>(workers));
        const auto bytes = [&](const TrainOptions& of) {
          return plan_run(of, trainer.replica().ops(), others->rank()).bytes();
        };
        EXPECT_GE(bytes(options) - bytes(without), planned);
        EXPECT_LT(bytes(options) - bytes(without), planned + 3 * Layout::kAlignment);
        others->barrier();
      });
    }
  }
}

// Of `before` workers some are left, at their places in a generation of `now`; the others are new.
struct Regrouping {
  int before = 0;
  std::vector<int> left;
  int now = 0;
};

TEST(KeptShards, AreDividedAnewAmongAnotherNumberOfWorkers) {
  const std::vector<Regrouping> all = {{4, {0, 1, 3}, 3},    {4, {1, 3}, 2},    {4, {0, 1, 3}, 5},
                                       {4, {0, 1, 2, 3}, 4}, {4, {0, 1, 3}, 4}, {2, {1}, 1},
                                       {1, {0}, 3}};
  for (const Regrouping& one : all) {
    for (const int zero : {1, 2, 3}) {
      for (const nn::Partition partition : {nn::Partition::kTensor, nn::Partition::kLayer}) {
        SCOPED_TRACE(fmt::format("{} to {}, zero {}, partition {}", one.before, one.now, zero,
                                 static_cast<int>(partition)));
        std::mutex mutex;
        WholeStates before;
        WholeStates after;
        std::vector<KeptShards> kept(static_cast<std::size_t>(one.before));
        TrainOptions options = mirrored_options(zero, one.before);
        options.parallel.partition = partition;
        run_workers(options, [&](Trainer& trainer, Communicator* others) {
          trainer.start();
          std::optional<ShardMirror> mirror;
          if (others != nullptr) {
            mirror.emplace(*others, trainer);
            trainer.set_before_update([&] { mirror->wait(); });
          }
          run_steps(trainer, 3, [&](const StepMetrics&) {
            if (mirror) mirror->begin(*trainer.last_settled());
          });
          if (mirror) mirror->wait();
          const std::lock_guard lock(mutex);
          take_states(trainer.replica(), before);
          kept[others == nullptr ? 0 : static_cast<std::size_t>(others->rank())] =
              mirror ? mirror->take(trainer.last_settled())
                     : keep_whole_shard(trainer.replica(), trainer.last_settled());
        });
        options.batch.workers = one.now;
        run_workers(options, [&](Trainer& trainer, Communicator* others) {
          const RunGroup group(others);
          const auto me = static_cast<std::size_t>(RunGroup(others).rank());
          std::optional<KeptShards> mine;
          if (me < one.left.size()) {
            mine = std::move(kept[static_cast<std::size_t>(one.left[me])]);
          }
          const CommonStepSearch search = find_common_step(mine, group);
          ASSERT_TRUE(search.found) << search.lost;
          EXPECT_EQ(search.found->state.steps, 3);
          restore_shards(*search.found, mine, group, trainer.replica());
          const std::lock_guard lock(mutex);
          take_states(trainer.replica(), after);
        });
        EXPECT_FALSE(before.empty());
        EXPECT_EQ(before, after);
      }
    }
  }
}

// Of these steps, without bytes.
std::vector<ShardVersion> versions(const std::vector<std::int64_t>& steps) {
  std::vector<ShardVersion> all;
  for (const std::int64_t step : steps) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = static_cast<double>(step) / 8;
    all.push_back({.state = {.steps = step, .updates = step, .loss_scale = {}},
                   .metrics = metrics,
                   .bytes = {}});
  }
  return all;
}

// Ranks that kept shards of different numberings do not mix them up.
TEST(CommonStep, IsOfOneNumbering) {
  std::vector<CommonStepSearch> found(3);
  run_threads(3, [&](Communicator& world) {
    KeptShards kept;
    kept.numbering = world.rank() == 0 ? 4 : 5;
    kept.worker = world.rank();
    kept.parts.resize(3);
    kept.ward = (world.rank() + 2) % 3;
    kept.own = versions({42});
    kept.mirrored = versions({42});
    found[static_cast<std::size_t>(world.rank())] =
        find_common_step(std::move(kept), RunGroup(&world));
  });
  // Of numbering 5 the shards of ranks 0 to 2 are with ranks 1 and 2: 0 is the ward of 1.
  ASSERT_TRUE(found[0].found);
  EXPECT_EQ(found[0].found->numbering, 5);
  EXPECT_THAT(found[0].found->holders, ElementsAre(1, 1, 2));
  EXPECT_THAT(found[0].found->mirrored, ElementsAre(true, false, false));
}

// What each of three workers has; nothing: it is new.
struct Kept {
  std::vector<std::int64_t> own;
  std::vector<std::int64_t> mirrored;
};
CommonStepSearch search(const std::vector<std::optional<Kept>>& workers) {
  CommonStepSearch result;
  std::mutex mutex;
  run_threads(static_cast<int>(workers.size()), [&](Communicator& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    std::optional<KeptShards> kept;
    if (workers[me]) {
      kept.emplace();
      kept->worker = world.rank();
      kept->parts.resize(workers.size());
      kept->ward = (world.rank() + world.size() - 1) % world.size();
      kept->own = versions(workers[me]->own);
      kept->mirrored = versions(workers[me]->mirrored);
    }
    CommonStepSearch mine = find_common_step(kept, RunGroup(&world));
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) result = std::move(mine);
  });
  return result;
}

TEST(CommonStep, IsTheLastOneOfWhichEveryShardIsLeft) {
  auto found = search({Kept{{42, 41}, {41}}, Kept{{42, 41}, {41, 42}}, std::nullopt}).found;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.steps, 41);
  EXPECT_THAT(found->holders, ElementsAre(0, 1, 0));
  ASSERT_TRUE(found->record);
  EXPECT_EQ(found->record->metrics.loss, 41.0 / 8);
  EXPECT_EQ(describe(*found), "the shards in memory, that of rank 2 from its mirror on rank 0");

  found = search({Kept{{42, 41}, {41, 42}}, Kept{{42}, {41, 42}}, std::nullopt}).found;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.steps, 42);

  // A worker whose update failed has the copy alone.
  found = search({std::nullopt, Kept{{41}, {40, 41}}, Kept{{42, 41}, {41, 42}}}).found;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.steps, 41);
  EXPECT_THAT(found->holders, ElementsAre(1, 1, 2));
}

TEST(CommonStep, IsNoneWhereAShardIsLostWithItsMirror) {
  const CommonStepSearch both = search({std::nullopt, std::nullopt, Kept{{42, 41}, {41, 42}}});
  EXPECT_FALSE(both.found);
  EXPECT_EQ(both.lost, "the shard of rank 0 and its mirror are lost");
  const CommonStepSearch different = search({Kept{{42}, {41}}, Kept{{42}, {42}}, std::nullopt});
  EXPECT_FALSE(different.found);
  EXPECT_THAT(different.lost, HasSubstr("of different steps"));
}

TEST(CommonStep, IsNotSearchedInANewJob) {
  const CommonStepSearch none = search({std::nullopt, std::nullopt});
  EXPECT_FALSE(none.found);
  EXPECT_THAT(none.lost, IsEmpty());
}

}  // namespace
}  // namespace lockstep::train
