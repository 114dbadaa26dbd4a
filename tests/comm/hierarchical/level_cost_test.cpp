// When two levels cost less than one.
#include <gtest/gtest.h>

#include "lockstep/comm/hierarchical/level_cost.h"

namespace lockstep::hierarchical {
namespace {

constexpr NodeGrid kTwoOfEight{.nodes = 2, .places = 8};

double gain(const LevelCall& call, const NodeGrid& grid,
            const LevelLinks& links = assumed_level_links()) {
  return seconds_in_one_level(call, grid, links) / seconds_in_two_levels(call, grid, links);
}

TEST(LevelCost, SendsAVectorAcrossOnceForEachNode) {
  const LevelCall call{.kind = Collective::kAllReduce, .bytes = 1600};
  EXPECT_DOUBLE_EQ(bytes_across_in_two_levels(call, kTwoOfEight), 1600);
  EXPECT_DOUBLE_EQ(bytes_across_in_one_level(call, kTwoOfEight), 2 * 1600 * 15 / 16.0);
  LevelCall exchange = call;
  exchange.is_exchange = true;
  EXPECT_DOUBLE_EQ(bytes_across_in_one_level(exchange, kTwoOfEight), 8 * 1600);
  exchange.kind = Collective::kReduce;
  EXPECT_DOUBLE_EQ(bytes_across_in_one_level(exchange, kTwoOfEight), 4 * 1600 + 800);
  for (const Collective kind : {Collective::kReduceScatter, Collective::kAllGather}) {
    EXPECT_DOUBLE_EQ(bytes_across_in_two_levels({.kind = kind, .bytes = 1600}, kTwoOfEight), 800);
    EXPECT_DOUBLE_EQ(bytes_across_in_one_level({.kind = kind, .bytes = 1600}, kTwoOfEight), 1500);
  }
}

// The nodes of eight GPUs have a NIC for two of them.
TEST(LevelCost, OneLevelWinsWhereStartUpsCountAndTwoWhereBytesDo) {
  LevelLinks links = assumed_level_links();
  links.across.bandwidth /= 4;
  for (const Collective kind :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    EXPECT_LT(gain({.kind = kind, .bytes = 1024}, kTwoOfEight, links), 1) << name(kind);
    EXPECT_GT(gain({.kind = kind, .bytes = 1e9}, kTwoOfEight, links), 1.4) << name(kind);
  }
}

TEST(LevelCost, TwoLevelsGainMostWhereEveryRankWouldSendToEveryRank) {
  const LevelCall call{.kind = Collective::kReduceScatter, .bytes = 1e9, .is_exchange = true};
  EXPECT_GT(gain(call, kTwoOfEight), 4);
  EXPECT_LT(gain(call, {.nodes = 2, .places = 2}), gain(call, kTwoOfEight));
}

TEST(LevelCost, RoundsTakeTheirStartUps) {
  const LevelLinks links = assumed_level_links();
  const LevelCall once{.kind = Collective::kAllReduce, .bytes = 1e6};
  LevelCall often = once;
  often.rounds = 10;
  EXPECT_NEAR(seconds_in_two_levels(often, kTwoOfEight, links) -
                  seconds_in_two_levels(once, kTwoOfEight, links),
              9 * (2 * links.inside.alpha + links.across.alpha), 1e-9);
}

TEST(NodeGrid, IsTheSameNumberOfRanksOnEveryNodeInOrder) {
  const auto grid_of = [](std::vector<int> nodes) { return node_grid(nodes); };
  const auto grid = grid_of({7, 7, 3, 3, 5, 5});
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->nodes, 3);
  EXPECT_EQ(grid->places, 2);
  EXPECT_EQ(grid->ranks_of_node(1), (std::vector<int>{2, 3}));
  EXPECT_EQ(grid->ranks_of_lane(1), (std::vector<int>{1, 3, 5}));
  EXPECT_TRUE(grid_of({0, 0, 0}));
  EXPECT_FALSE(grid_of({0, 0, 0, 1, 1}));
  EXPECT_FALSE(grid_of({0, 1, 0, 1}));
  EXPECT_FALSE(grid_of({0, 0, 1, 1, 0, 0}));
  EXPECT_FALSE(grid_of({}));
}

}  // namespace
}  // namespace lockstep::hierarchical
