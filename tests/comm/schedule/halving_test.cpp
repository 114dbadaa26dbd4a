#include "lockstep/comm/schedule/halving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lockstep::schedule {
namespace {

constexpr int kMany = 150;

TEST(HalvingLevels, ServeTwoAtMostOncePerRank) {
  for (Pairing pairing : {Pairing::kFar, Pairing::kNear}) {
    for (int n = 1; n <= kMany; ++n) {
      for (int rank = 0; rank < n; ++rank) {
        const std::vector<Level> levels = halving_levels(n, rank, pairing);
        EXPECT_LE(std::ssize(levels), ceil_log2(n));
        EXPECT_LE(std::count_if(levels.begin(), levels.end(),
                                [](const Level& level) { return level.from.size() > 1; }),
                  1)
            << "rank " << rank << " of " << n;
      }
    }
  }
}

TEST(HalvingLevels, EndWithOnePartPerRank) {
  for (Pairing pairing : {Pairing::kFar, Pairing::kNear}) {
    for (int n = 2; n <= kMany; ++n) {
      std::set<int> places;
      for (int rank = 0; rank < n; ++rank) {
        const Range kept = halving_levels(n, rank, pairing).back().keep;
        EXPECT_EQ(kept.count, 1);
        if (pairing == Pairing::kFar) {
          EXPECT_EQ(kept.first, rank);
        }
        places.insert(kept.first);
      }
      EXPECT_EQ(std::ssize(places), n);
    }
  }
}

TEST(HalvingLevels, StartWithNeighboursWherePairingIsNear) {
  EXPECT_EQ(halving_levels(8, 2, Pairing::kNear).front().to, 3);
  EXPECT_EQ(halving_levels(8, 2, Pairing::kFar).front().to, 6);
}

TEST(HalvingTree, IsBinomialForPowersOfTwo) {
  const TreeNode root = halving_tree(8, 0, 0);
  ASSERT_EQ(root.children.size(), 3u);
  EXPECT_EQ(root.children[0].rank, 4);
  EXPECT_EQ(root.children[1].rank, 2);
  EXPECT_EQ(root.children[2].rank, 1);
  const TreeNode leaf = halving_tree(8, 0, 7);
  EXPECT_EQ(leaf.parent, 6);
  EXPECT_EQ(leaf.round, 2);
}

TEST(HalvingTree, SubtreesAreRunsThatHoldTheirRoot) {
  for (int n = 1; n <= 40; ++n) {
    for (int root = 0; root < n; ++root) {
      for (int rank = 0; rank < n; ++rank) {
        const TreeNode node = halving_tree(n, root, rank);
        EXPECT_EQ(node.parent < 0, rank == root);
        int ranks = 1;
        for (const TreeChild& child : node.children) ranks += child.subtree.count;
        EXPECT_EQ(ranks, node.subtree.count);
        EXPECT_TRUE(rank >= node.subtree.first && rank < node.subtree.end());
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::schedule
