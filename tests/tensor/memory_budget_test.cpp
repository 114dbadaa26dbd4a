#include "lockstep/tensor/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::memory_budget_test {
namespace {

TEST(MemoryBudget, CountsWhatItsBuffersHoldAndNothingElse) {
  MemoryBudget budget("device");
  const Buffer elsewhere(100);
  EXPECT_EQ(budget.in_use(), 0u);
  {
    Buffer first(1000, {}, &budget);
    Buffer second(17, {}, &budget);
    EXPECT_EQ(budget.in_use(), 1017u);
    second = std::move(first);
    EXPECT_EQ(budget.in_use(), 1000u);
    const MemoryClaim shared(&budget, 5);
    EXPECT_EQ(budget.in_use(), 1005u);
  }
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_EQ(budget.peak(), 1017u);
}

TEST(MemoryBudget, GivesAllOfItsLimitAndNotAByteMore) {
  MemoryBudget budget("device", 1000);
  const Buffer half(500, {}, &budget);
  EXPECT_THROW(Buffer(501, {}, &budget), Error);
  EXPECT_THROW(Buffer(static_cast<std::size_t>(-1), {}, &budget), Error) << "no sum overflows";
  EXPECT_EQ(budget.in_use(), 500u) << "a refusal takes nothing";
  const Buffer rest(500, {}, &budget);
  EXPECT_EQ(budget.in_use(), 1000u);
  EXPECT_NO_THROW(Buffer(0, {}, &budget));
  try {
    MemoryClaim(&budget, 1);
    FAIL() << "more than the limit was given";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("device tier"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("limit is 1000"));
  }
}

}  // namespace
}  // namespace lockstep::memory_budget_test
