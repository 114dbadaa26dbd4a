// What the conformance suite does not ask of hierarchical communicators: bits, bytes, choices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/comm/hierarchical/host_levels.h"

namespace lockstep::hierarchical {
namespace {

using ::testing::HasSubstr;
using testing::host_levels;
using testing::on_emulated_nodes;

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
  }
  return values;
}

TEST(TwoLevels, SumsNodesFirst) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()), {.tree_order = true});
    for (const std::size_t count : {1, 2, 7, 1001, 5000}) {
      std::vector<float> sum = values_of(group->rank(), count);
      std::vector<float> in = sum;
      group->all_reduce(sum);
      std::vector<float> block(count);
      std::vector<float> blocks;
      for (int r = 0; r < 4; ++r) blocks.insert(blocks.end(), in.begin(), in.end());
      group->reduce_scatter(blocks, block);
      std::vector<float> at_root(count);
      group->reduce(in, group->rank() == 3 ? Data(at_root) : Data(), ReduceOp::kSum, 3);
      std::vector<std::vector<float>> all;
      for (int r = 0; r < 4; ++r) all.push_back(values_of(r, count));
      for (std::size_t i = 0; i < count; ++i) {
        const float expected = (all[0][i] + all[1][i]) + (all[2][i] + all[3][i]);
        ASSERT_EQ(sum[i], expected) << i;
        ASSERT_EQ(block[i], expected) << i;
        if (group->rank() == 3) {
          ASSERT_EQ(at_root[i], expected) << i;
        }
      }
    }
  });
}

// A vector of S bytes is on 2 nodes of 2 places: a lane all-reduces S/2, so a rank sends S/2
// across.
TEST(TwoLevels, SendAcrossNodesWhatALaneNeeds) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    constexpr std::size_t kCount = 8'000;
    const auto group = host_levels(world.split(0, world.rank()), {.staging_bytes = 1 << 20});
    const SymmetricBuffer memory = group->allocate(kCount * sizeof(float));
    const auto across_of = [&](const Call& call) {
      const std::uint64_t before = group->bytes_across().value();
      group->run(call);
      return group->bytes_across().value() - before;
    };
    EXPECT_EQ(across_of(all_reduce(memory.as<float>())), kCount * sizeof(float) / 2);
    std::vector<float> block(kCount / 4), all(kCount);
    EXPECT_EQ(across_of(reduce_scatter(memory.as<float>(), block)), kCount / 4 * sizeof(float));
    EXPECT_EQ(across_of(all_gather(block, all)), kCount / 4 * sizeof(float));
    EXPECT_GE(group->bytes_sent(), group->bytes_across());
  });
}

TEST(TwoLevels, ServeWhatTheyCanDoAsPromised) {
  on_emulated_nodes(6, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()));
    const auto ordered = host_levels(world.split(0, world.rank()), {.tree_order = true});
    const auto algorithm = [](Communicator& comm, DType dtype, ReduceOp::Kind op) {
      alignas(8) std::byte memory[80]{};
      return comm.choice(all_reduce(Data(memory, 10, dtype), op)).algorithm;
    };
    EXPECT_EQ(algorithm(*group, DType::kF32, ReduceOp::kSum), "two_levels");
    EXPECT_EQ(algorithm(*group, DType::kBF16, ReduceOp::kSum), "two_levels");
    // Three places: a mean of means is rounded twice, and a tree over ranks is none over nodes.
    EXPECT_NE(algorithm(*group, DType::kF32, ReduceOp::kMean), "two_levels");
    EXPECT_NE(algorithm(*ordered, DType::kF32, ReduceOp::kSum), "two_levels");
    EXPECT_EQ(algorithm(*ordered, DType::kF32, ReduceOp::kMax), "two_levels");
    EXPECT_EQ(algorithm(*ordered, DType::kI64, ReduceOp::kSum), "two_levels");
  });
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto ordered = host_levels(world.split(0, world.rank()), {.tree_order = true});
    alignas(8) std::byte memory[80]{};
    const auto algorithm = [&](DType dtype) {
      return ordered->choice(all_reduce(Data(memory, 10, dtype))).algorithm;
    };
    EXPECT_EQ(algorithm(DType::kF32), "two_levels");
    EXPECT_NE(algorithm(DType::kBF16), "two_levels");  // would be rounded between the levels
  });
}

// The cost model sees large calls gain and small ones lose, on assumed links.
TEST(TwoLevels, AreChosenByCost) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group = host_levels(world.split(0, world.rank()),
                                   {.staging_bytes = std::size_t{1} << 20, .forced = false});
    const SymmetricBuffer memory = group->allocate(std::size_t{64} << 20);
    const auto choice_of = [&](std::size_t count) {
      return group->choice(all_reduce(memory.as<float>().first(count)));
    };
    EXPECT_NE(choice_of(100).algorithm, "two_levels");
    EXPECT_EQ(choice_of(std::size_t{16} << 20).algorithm, "two_levels");
    EXPECT_THAT(choice_of(100).why, HasSubstr("links assumed"));
  });
}

TEST(TwoLevels, MeasureLinksAndChooseAlikeOnAllRanks) {
  on_emulated_nodes(4, 2, [](Communicator& world) {
    const auto group =
        host_levels(world.split(0, world.rank()),
                    {.staging_bytes = std::size_t{1} << 20, .forced = false, .measure = true});
    EXPECT_THAT(group->choice(all_reduce(Data(nullptr, 0, DType::kF32))).why,
                HasSubstr("links measured"));
    for (const std::size_t count : {1, 1000, 100'000, 1'000'000}) {
      std::vector<float> data(count, 1.0f);
      group->all_reduce(data);
      EXPECT_EQ(data, std::vector<float>(count, 4.0f));
    }
  });
}

}  // namespace
}  // namespace lockstep::hierarchical
