#include "lockstep/comm/shared/yields.h"

#include <gtest/gtest.h>

namespace lockstep::shared {
namespace {

TEST(Yields, GoOnWhileTheyAreShort) {
  Yields yields;
  for (int wait = 0; wait < 1000; ++wait) {
    EXPECT_TRUE(yields.worthwhile());
    EXPECT_TRUE(yields.took(Yields::kLong - std::chrono::nanoseconds(1)));
  }
}

TEST(Yields, ALongOneIsTheLastForAWhile) {
  Yields yields;
  EXPECT_TRUE(yields.worthwhile());
  EXPECT_FALSE(yields.took(Yields::kLong));
  for (int wait = 0; wait < Yields::kWaitsWithout; ++wait) EXPECT_FALSE(yields.worthwhile());
  EXPECT_TRUE(yields.worthwhile());
  EXPECT_TRUE(yields.took(std::chrono::microseconds(2)));
  EXPECT_TRUE(yields.worthwhile());
}

}  // namespace
}  // namespace lockstep::shared
