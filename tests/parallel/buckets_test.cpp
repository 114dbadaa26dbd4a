#include "lockstep/parallel/ddp/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

using ::testing::ElementsAre;

// Blocks of these sizes, in the order in which backward finishes them.
std::vector<Segment> segments(std::initializer_list<std::size_t> sizes) {
  std::vector<Segment> all;
  std::size_t at = 0;
  std::size_t block = sizes.size();
  for (const std::size_t size : sizes) {
    all.push_back({{at, size}, --block});
    at += size;
  }
  return all;
}

TEST(Buckets, HoldEveryElementOnceAndNothingThatIsNotReady) {
  for (const std::size_t first : {1ul, 64ul, 4096ul}) {
    for (const std::size_t others : {32ul, 1000ul, 1ul << 20}) {
      const auto all = segments({32, 3200, 64, 64, 9632, 32});
      const auto buckets = plan_buckets(all, 4, {.first = first, .others = others});
      std::size_t at = 0;
      for (const Bucket& bucket : buckets) {
        EXPECT_EQ(bucket.range.first, at);
        EXPECT_GT(bucket.range.elements, 0u);
        at = bucket.range.end();
        std::size_t last_block = 0;
        for (const Segment& segment : all) {
          if (segment.range.first < at) last_block = segment.ready_after;
        }
        EXPECT_EQ(bucket.ready_after, last_block);
      }
      EXPECT_EQ(at, all.back().range.end());
    }
  }
}

TEST(Buckets, AreAsLargeAsAskedForAndTheFirstAndTheLastAreSmaller) {
  const auto all = segments({64, 64, 64, 64, 64, 64, 64, 64, 64, 32, 32, 64});
  const auto buckets = plan_buckets(all, 4, {.first = 256, .others = 1024});
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : buckets) sizes.push_back(bucket.range.elements);
  // Less than 1024 bytes follow the eighth segment; from there on a bucket has 256.
  EXPECT_THAT(sizes, ElementsAre(64, 256, 128, 64, 64, 64, 64));
}

TEST(Buckets, CutALargeBlockIntoEqualParts) {
  const auto all = segments({32, 3200, 1280});
  const auto buckets = plan_buckets(all, 4, {.first = 128, .others = 5000});
  ASSERT_EQ(buckets.size(), 9u);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(buckets[i].range.elements), 3200 / 3.0, 32);
    EXPECT_EQ(buckets[i].ready_after, 1u);
  }
  for (std::size_t i = 4; i < 9; ++i) {
    EXPECT_EQ(buckets[i].range.elements, 256u);
    EXPECT_EQ(buckets[i].ready_after, 0u);
  }
}

TEST(Buckets, BeginWithASmallOneEvenOfALargeBlock) {
  const auto buckets = plan_buckets(segments({3200, 1600}), 4, {.first = 256, .others = 6400});
  ASSERT_EQ(buckets.size(), 7u);
  EXPECT_EQ(buckets[0].range.elements, 64u);
  EXPECT_EQ(buckets[1].range.elements, 1568u);
  EXPECT_EQ(buckets[2].range.elements, 1568u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(buckets[i].ready_after, 1u);
}

TEST(Buckets, AreReadyOnceBackwardHasPassedTheirEnd) {
  // Of blocks 2 and 1, of block 1, and of block 0, whose gradients are complete with block 2.
  const Bucket both{{0, 96}, 1};
  const Bucket own{{96, 64}, 1};
  const Bucket tied{{160, 32}, 2};
  const auto up_to = [](std::size_t block, std::size_t end) {
    return Progress{.block = block, .done = nn::FlatRange{0, end}};
  };
  EXPECT_FALSE(is_ready(both, {.block = 2}));
  EXPECT_FALSE(is_ready(both, up_to(1, 64)));
  EXPECT_TRUE(is_ready(both, up_to(1, 96)));
  EXPECT_FALSE(is_ready(own, up_to(1, 128)));
  EXPECT_TRUE(is_ready(own, {.block = 1}));
  EXPECT_TRUE(is_ready(own, up_to(0, 192)));
  EXPECT_FALSE(is_ready(tied, up_to(2, 64)));
  EXPECT_TRUE(is_ready(tied, {.block = 2}));
  EXPECT_TRUE(is_ready(tied, up_to(1, 96)));
}

// What lies before a parameter that is made in parts may not be complete.
TEST(Buckets, AreReadyOnceAllOfThemWasAddedTo) {
  const Bucket own{{0, 32}, 2};
  const Bucket tied{{160, 32}, 2};
  const auto added = [](std::size_t block, std::size_t elements) {
    return Progress{.block = block, .done = nn::FlatRange{160, elements}};
  };
  EXPECT_FALSE(is_ready(tied, added(2, 16)));
  EXPECT_TRUE(is_ready(tied, added(2, 32)));
  EXPECT_TRUE(is_ready(tied, added(2, 64)));
  EXPECT_FALSE(is_ready(tied, added(3, 64)));
  EXPECT_FALSE(is_ready(own, added(2, 64)));
}

TEST(Buckets, OfNothingAreNone) { EXPECT_TRUE(plan_buckets({}, 4, {}).empty()); }

TEST(Buckets, DoNotJoinWhatIsNotAdjacent) {
  const std::vector<Segment> apart{{{0, 32}, 3}, {{64, 32}, 2}, {{32, 32}, 0}};
  EXPECT_EQ(plan_buckets(apart, 4, {}).size(), 3u);
}

}  // namespace
}  // namespace lockstep::parallel
