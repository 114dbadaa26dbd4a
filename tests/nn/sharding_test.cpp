#include "lockstep/nn/parameters/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/nn/memory/gather_plan.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn::sharding_test {
namespace {

using ::testing::ElementsAre;

MemoryPlan plan_of(const Sharding& sharding, DType dtype = DType::kBF16) {
  const auto ops = make_cpu_ops(1);
  Setup setup = tiny_setup(Tiny::kGpt2);
  setup.dtype = setup.gradient = dtype;
  return plan_memory(make_tiny(Tiny::kGpt2), setup, *ops, OptimizerState::kMoments, sharding);
}

TEST(Shards, PartsOfAllWorkersAreTheWholeRow) {
  for (const Partition partition : {Partition::kTensor, Partition::kLayer}) {
    for (const int workers : {1, 2, 3, 8, 64}) {
      const MemoryPlan plan =
          plan_of({.workers = workers, .optimizer = true, .partition = partition});
      for (std::size_t block = 0; block < plan.flat.blocks(); ++block) {
        std::size_t next = plan.flat.range(block).first;
        for (int worker = 0; worker < workers; ++worker) {
          const FlatRange part = plan.shards.of(block, worker);
          if (part.elements == 0) continue;
          EXPECT_EQ(part.first, next);
          EXPECT_EQ((part.first - plan.flat.range(block).first) % Shards::kAlignment, 0u);
          next = part.end();
        }
        EXPECT_EQ(next, plan.flat.range(block).end());
      }
    }
  }
}

TEST(Shards, AreAsLongAsTheFormulaSaysPlusAlignment) {
  for (const int workers : {2, 4, 8, 64}) {
    const MemoryPlan plan = plan_of({.workers = workers, .optimizer = true});
    const std::size_t least = plan.flat.count() / static_cast<std::size_t>(workers);
    const std::size_t gaps = plan.flat.all().size() * FlatParameters::kAlignment;
    EXPECT_GE(plan.shards.elements(), least);
    EXPECT_LE(plan.shards.elements(), least + gaps / static_cast<std::size_t>(workers) +
                                          plan.flat.blocks() * Shards::kAlignment);
  }
}

TEST(Shards, WholeBlocksAreDealtOutEvenly) {
  const MemoryPlan plan =
      plan_of({.workers = 2, .optimizer = true, .partition = Partition::kLayer});
  std::size_t largest = 0;
  for (std::size_t block = 0; block < plan.flat.blocks(); ++block) {
    largest = std::max(largest, plan.flat.range(block).elements);
  }
  EXPECT_LE(plan.shards.elements(), plan.flat.elements() / 2 + largest / 2 + 1);
}

std::vector<std::size_t> there(std::span<const Gather> gathers, int step) {
  std::vector<std::size_t> units;
  for (const Gather& gather : gathers) {
    if (gather.starts <= step && step <= gather.last) units.push_back(gather.unit);
  }
  return units;
}

TEST(GatherPlan, BringsUnitsAStepAheadAndNoMoreThanAllowedAtOnce) {
  const std::vector<std::vector<std::size_t>> reads{{0}, {1}, {2}, {0, 3}, {0, 3}, {2}, {1}, {}};
  const std::vector<Gather> gathers = plan_gathers(reads, {.max_unsharded_blocks = 2});
  for (int step = 0; step < 8; ++step) {
    EXPECT_LE(there(gathers, step).size(), 2u) << step;
    for (const std::size_t unit : reads[static_cast<std::size_t>(step)]) {
      EXPECT_THAT(there(gathers, step), ::testing::Contains(unit)) << step;
    }
  }
  EXPECT_THAT(there(gathers, 0), ElementsAre(0, 1));
  EXPECT_THAT(there(gathers, 2), ElementsAre(2, 0));
  EXPECT_THAT(there(gathers, 4), ElementsAre(0, 3));
  EXPECT_THAT(there(gathers, 5), ElementsAre(2, 1));
  EXPECT_EQ(gathers.size(), 7u);
  EXPECT_EQ(plan_gathers(reads, {.max_unsharded_blocks = 1}).size(), 7u);
  EXPECT_THAT(there(plan_gathers(reads, {.max_unsharded_blocks = 1}), 0), ElementsAre(0));
  EXPECT_THAT(there(plan_gathers(reads, {.max_unsharded_blocks = 3}), 4), ElementsAre(0, 3, 2));
  EXPECT_TRUE(plan_gathers({}, {}).empty());
}

// A table that the last block reads too, and one that it does not.
TEST(GatherPlan, BringsEveryUnitTwiceWhereItDoesNotKeepTheLastOnes) {
  const std::vector<std::vector<std::size_t>> tied{{0}, {1}, {2}, {0, 3}, {0, 3}, {2}, {1}, {}};
  const std::vector<std::vector<std::size_t>> own{{0}, {1}, {2}, {3}, {3}, {2}, {1}, {}};
  for (const auto& reads : {tied, own}) {
    for (const int most : {1, 2, 3}) {
      const auto gathers =
          plan_gathers(reads, {.max_unsharded_blocks = most, .reshard_after_forward = true});
      for (std::size_t unit = 0; unit < 4; ++unit) {
        EXPECT_EQ(std::ranges::count(gathers, unit, &Gather::unit), 2) << unit;
      }
      for (std::size_t step = 0; step < reads.size(); ++step) {
        const std::vector<std::size_t> units = there(gathers, static_cast<int>(step));
        EXPECT_LE(units.size(),
                  std::max<std::size_t>(static_cast<std::size_t>(most), reads[step].size()));
        for (const std::size_t unit : reads[step]) EXPECT_THAT(units, ::testing::Contains(unit));
      }
      const Gather again{.unit = 3, .starts = 4, .needed = 4, .last = 4};
      EXPECT_THAT(gathers, ::testing::Contains(again));
    }
  }
  const auto gathers = plan_gathers({{0}, {0}}, {.reshard_after_forward = true});  // one block
  EXPECT_THAT(gathers, ElementsAre(Gather{.unit = 0, .starts = 0, .needed = 0, .last = 0},
                                   Gather{.unit = 0, .starts = 1, .needed = 1, .last = 1}));
}

TEST(GatherPlan, OfAModelHasTwoBlocksAtOnceAndReadsEachTwice) {
  const MemoryPlan plan = plan_of(
      {.workers = 2, .optimizer = true, .gradients = true, .parameters = true, .symmetric = true});
  std::size_t elements = 0;
  for (const Gather& gather : plan.gathers) elements += plan.flat.range(gather.unit).elements;
  const std::size_t head = plan.flat.range(plan.flat.blocks() - 1).elements;
  EXPECT_EQ(elements, 2 * plan.flat.elements() - head);
  for (int step = 0; step < 2 * static_cast<int>(plan.flat.blocks()); ++step) {
    EXPECT_LE(there(plan.gathers, step).size(), 2u);
  }
}

TEST(MemoryPlan, StatesOfAWorkerAreTheFormulasOfZero) {
  const auto bytes_of = [](const MemoryPlan& plan, std::initializer_list<std::string_view> groups) {
    std::size_t bytes = 0;
    for (const auto* requests : {&plan.requests, &plan.symmetric_requests}) {
      for (const Request& request : *requests) {
        if (request.name == "sums of squares") continue;
        if (std::ranges::find(groups, request.group) != groups.end()) bytes += request.bytes;
      }
    }
    return bytes;
  };
  for (const int workers : {2, 4, 8, 64}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const MemoryPlan plan = plan_of({.workers = workers,
                                       .optimizer = stage >= 1,
                                       .gradients = stage >= 2,
                                       .parameters = stage >= 3,
                                       .symmetric = true});
      const std::size_t p = plan.flat.elements();
      const std::size_t part = stage == 0 ? p : p / static_cast<std::size_t>(workers);
      EXPECT_EQ(bytes_of(plan, {"optimizer"}), 12 * part);
      EXPECT_EQ(bytes_of(plan, {"gradients"}), 2 * (stage >= 2 ? part : p));
      EXPECT_EQ(bytes_of(plan, {"parameters"}), 2 * (stage >= 3 ? part : p));
      std::size_t all = 0;
      for (const GroupBytes& each : plan.by_class()) all += each.bytes;
      EXPECT_EQ(all, plan.bytes());
    }
  }
}

}  // namespace
}  // namespace lockstep::nn::sharding_test
