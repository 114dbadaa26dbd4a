#include "lockstep/base/math/counter_rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <vector>

namespace lockstep {
namespace {

// The known answers that come with the published algorithm.
TEST(Philox, GivesThePublishedAnswers) {
  constexpr std::uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(philox(0, {0, 0, 0, 0}),
            (RandomWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox(~std::uint64_t{0}, {kOnes, kOnes, kOnes, kOnes}),
            (RandomWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox(0x299f31d0a4093822u, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (RandomWords{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(philox(0, {0, 0, 0, 0})[0] == 0x6627e8d5u);
  static_assert(random_word(0, 0, 3) == 0x9b00dbd8u);
  static_assert(is_kept(1, 2, 3, 1.0) && !is_kept(1, 2, 3, 0.0));
}

TEST(Philox, UsesEveryBitOfSeedStepAndPosition) {
  std::set<RandomWords> seen = {random_block(0, 0, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t one = std::uint64_t{1} << bit;
    seen.insert(random_block(one, 0, 0));
    seen.insert(random_block(0, one, 0));
    seen.insert(random_block(0, 0, one));
  }
  EXPECT_EQ(seen.size(), 1u + 3 * 64);
}

TEST(Philox, ChangesHalfOfTheBitsWhenOneBitOfTheCounterDoes) {
  int changed = 0;
  for (std::uint64_t block = 0; block < 1000; ++block) {
    const RandomWords a = random_block(7, 0, block);
    const RandomWords b = random_block(7, 0, block ^ (std::uint64_t{1} << (block % 64)));
    for (std::size_t i = 0; i < 4; ++i) changed += std::popcount(a[i] ^ b[i]);
  }
  EXPECT_NEAR(changed / 128'000.0, 0.5, 0.01);
}

TEST(Uniform, LiesBelowOneAtBothEnds) {
  EXPECT_EQ(to_uniform(0), 0.0f);
  EXPECT_EQ(to_uniform(0xffu), 0.0f);
  EXPECT_EQ(to_uniform(0x100u), 0x1p-24f);
  EXPECT_EQ(to_uniform(0x80000000u), 0.5f);
  EXPECT_EQ(to_uniform(0xffffffffu), 1.0f - 0x1p-24f);
}

TEST(Uniform, HasTheMomentsOfItsDistribution) {
  constexpr std::uint64_t kCount = 1 << 20;
  double sum = 0;
  double squares = 0;
  std::array<int, 16> bins{};
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(uniform_at(42, 3, i));
    sum += x;
    squares += x * x;
    ++bins[static_cast<std::size_t>(x * 16)];
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5, 0.002);  // 7 stddevs
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12, 5e-4);
  for (const int bin : bins) EXPECT_NEAR(bin, kCount / 16.0, 1800);  // 7 stddevs
}

TEST(Normal, HasTheMomentsOfItsDistribution) {
  constexpr std::uint64_t kCount = 1 << 20;
  std::array<double, 5> moments{};
  double neighbours = 0;
  double before = 0;
  std::uint64_t within_one = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(normal_at(42, 3, i));
    ASSERT_LT(std::abs(x), 5.8);
    double power = 1;
    for (double& moment : moments) {
      moment += power / kCount;
      power *= x;
    }
    neighbours += x * before / kCount;
    before = x;
    within_one += std::abs(x) < 1 ? 1 : 0;
  }
  EXPECT_NEAR(moments[1], 0, 0.007);
  EXPECT_NEAR(moments[2], 1, 0.01);
  EXPECT_NEAR(moments[3], 0, 0.03);
  EXPECT_NEAR(moments[4], 3, 0.08);
  EXPECT_NEAR(neighbours, 0, 0.007);
  EXPECT_NEAR(static_cast<double>(within_one) / kCount, 0.6827, 0.004);
}

TEST(Normal, IsFiniteAtTheEndsOfTheUniform) {
  EXPECT_EQ(to_normals(0, 0)[0], 0.0f);
  const auto [far, aside] = to_normals(0xffffffffu, 0);
  EXPECT_NEAR(far, std::sqrt(2 * 24 * std::log(2.0)), 1e-6);
  EXPECT_EQ(aside, 0.0f);
}

TEST(Mask, KeepsTheShareThatWasAskedFor) {
  constexpr std::uint64_t kCount = 1 << 18;
  for (const double probability : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) kept += is_kept(5, 17, i, probability) ? 1 : 0;
    const double stddev = std::sqrt(probability * (1 - probability) * kCount);
    EXPECT_NEAR(static_cast<double>(kept), probability * kCount, 6 * stddev) << probability;
  }
}

TEST(Mask, LimitsAreExactAtTheEnds) {
  EXPECT_EQ(keep_limit(0.5), std::uint64_t{1} << 31);
  EXPECT_EQ(keep_limit(1.0), std::uint64_t{1} << 32);
  EXPECT_EQ(keep_limit(7.0), std::uint64_t{1} << 32);
  EXPECT_EQ(keep_limit(-1.0), 0u);
  EXPECT_EQ(keep_limit(std::numeric_limits<double>::quiet_NaN()), 0u);
  EXPECT_TRUE(keeps(0xffffffffu, keep_limit(1.0)));
  EXPECT_FALSE(keeps(0, keep_limit(0.0)));
}

TEST(Mask, GrowsWithTheProbability) {
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    if (is_kept(1, 1, i, 0.3)) {
      EXPECT_TRUE(is_kept(1, 1, i, 0.6)) << i;
    }
  }
}

TEST(Mask, OfTwoStepsAndOfTwoSeedsAreIndependent) {
  constexpr std::uint64_t kCount = 1 << 18;
  std::uint64_t steps_agree = 0;
  std::uint64_t seeds_agree = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    steps_agree += is_kept(5, 17, i, 0.5) == is_kept(5, 18, i, 0.5) ? 1 : 0;
    seeds_agree += is_kept(5, 17, i, 0.5) == is_kept(6, 17, i, 0.5) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(steps_agree), kCount / 2.0, 1536);  // 6 stddevs
  EXPECT_NEAR(static_cast<double>(seeds_agree), kCount / 2.0, 1536);
}

// Element by element, backwards, and block by block give the same numbers.
TEST(CounterRng, DoesNotDependOnTheOrderOfEvaluation) {
  constexpr std::uint64_t kFirst = (std::uint64_t{1} << 34) - 500;  // blocks pass 2^32 on the way
  constexpr std::size_t kCount = 1000;
  std::vector<float> forward(kCount);
  std::vector<float> backward(kCount);
  std::vector<float> blocks(kCount);
  std::vector<std::uint32_t> words(kCount);
  for (std::size_t i = 0; i < kCount; ++i) forward[i] = normal_at(9, 1, kFirst + i);
  for (std::size_t i = kCount; i-- > 0;) backward[i] = normal_at(9, 1, kFirst + i);
  for (std::size_t block = 0; block < kCount / 4; ++block) {
    const auto normals = normal_block(9, 1, kFirst / 4 + block);
    const auto random = random_block(9, 1, kFirst / 4 + block);
    for (std::size_t i = 0; i < 4; ++i) {
      blocks[4 * block + i] = normals[i];
      words[4 * block + i] = random[i];
    }
  }
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward, blocks);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(words[i], random_word(9, 1, kFirst + i));
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::unique(words.begin(), words.end()), words.end());
}

}  // namespace
}  // namespace lockstep
