#include "lockstep/train/observe/peak.h"

#include <gtest/gtest.h>

#include "lockstep/tensor/device_memory.h"

namespace lockstep::train {
namespace {

TEST(Peak, CountsAMultiplicationAndAnAdditionAsTwo) {
  EXPECT_EQ(linear_flops({.rows = 3, .in = 5, .out = 7}), 2 * 3 * 5 * 7);
}

TEST(Peak, IsMeasuredInEveryTypeAndLeavesNothingBehind) {
  const auto ops = make_reference_ops();
  const std::size_t before = memory_in_use({});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const double rate = measure_peak_flops(*ops, dtype);
    EXPECT_GT(rate, 1e5);
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_EQ(memory_in_use({}), before);
}

RankPeak rank_on(const std::string& processor, const char* cpus, int threads, double flops) {
  return {.flops = flops, .processor = processor, .cpus = CpuSet::parse(cpus), .threads = threads};
}

TEST(Peak, OfRanksThatShareCoresIsThatOfTheCores) {
  const std::vector<RankPeak> crowd(64, rank_on("a", "0,1", 1, 64e9));
  EXPECT_DOUBLE_EQ(peak_of_ranks(crowd), 128e9);
  const std::vector<RankPeak> wide(3, rank_on("a", "0,1", 2, 120e9));
  EXPECT_DOUBLE_EQ(peak_of_ranks(wide), 120e9);
  EXPECT_DOUBLE_EQ(peak_of_ranks(std::vector(1, rank_on("a", "0,1", 8, 120e9))), 120e9)
      << "threads that share cores are one rank's own";
}

TEST(Peak, OfRanksWithCoresOfTheirOwnAddsUp) {
  EXPECT_DOUBLE_EQ(
      peak_of_ranks(std::vector{rank_on("a", "0,1", 1, 60e9), rank_on("a", "0,1", 1, 64e9)}),
      124e9);
  EXPECT_DOUBLE_EQ(
      peak_of_ranks(std::vector{rank_on("a", "0", 1, 60e9), rank_on("a", "1", 1, 64e9)}), 124e9);
  EXPECT_DOUBLE_EQ(
      peak_of_ranks(std::vector{rank_on("a", "0", 1, 60e9), rank_on("b", "0", 1, 64e9)}), 124e9)
      << "of two machines";
}

TEST(Peak, OfRanksThatShareAGpuIsThatOfTheGpu) {
  EXPECT_DOUBLE_EQ(
      peak_of_ranks(std::vector{rank_on("a/gpu0", "", 4, 5e14), rank_on("a/gpu0", "", 4, 6e14),
                                rank_on("a/gpu1", "", 4, 5e14)}),
      11e14);
}

TEST(Peak, TravelsBetweenRanksAsAText) {
  for (const char* cpus : {"0,2,3", ""}) {
    const RankPeak peak = rank_on("a/gpu0", cpus, 4, 64.25e9);
    const RankPeak back = RankPeak::parse(peak.text());
    EXPECT_EQ(back.flops, peak.flops);
    EXPECT_EQ(back.processor, peak.processor);
    EXPECT_EQ(back.cpus, peak.cpus);
    EXPECT_EQ(back.threads, peak.threads);
  }
}

}  // namespace
}  // namespace lockstep::train
