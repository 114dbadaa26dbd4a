#include "lockstep/bench/statistics.h"

#include <gtest/gtest.h>

namespace lockstep::bench {
namespace {

TEST(Quantile, OfSortedSamples) {
  const std::vector<double> samples{1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(quantile(samples, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(samples, 1), 5);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.1), 1.4);
}

TEST(Quantile, OfAnEvenNumberLiesBetween) {
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{1, 2}, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{7}, 0.9), 7);
}

TEST(GeometricMean, OfRatios) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{2, 8}), 4);
  EXPECT_DOUBLE_EQ(geometric_mean({}), 0);
}

TEST(SlowestRank, IsTakenCallByCall) {
  const std::vector<std::vector<double>> seconds{{1, 5, 2}, {3, 4, 2}};
  EXPECT_EQ(slowest_rank(seconds), (std::vector<double>{3, 5, 2}));
}

}  // namespace
}  // namespace lockstep::bench
