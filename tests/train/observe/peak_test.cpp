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

}  // namespace
}  // namespace lockstep::train
