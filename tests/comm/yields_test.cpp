#include "lockstep/comm/shared/yields.h"

#include <gtest/gtest.h>

namespace lockstep::shared {
namespace {

constexpr std::chrono::nanoseconds kShort = Yields::kLong - std::chrono::nanoseconds(1);

// How many waits do without after one more long yield.
int waits_without(Yields& yields) {
  EXPECT_TRUE(yields.worthwhile());
  EXPECT_FALSE(yields.took(Yields::kLong));
  int waits = 0;
  while (!yields.worthwhile()) ++waits;
  return waits;
}

TEST(Yields, GoOnWhileTheyAreShort) {
  Yields yields;
  for (int wait = 0; wait < 1000; ++wait) {
    EXPECT_TRUE(yields.worthwhile());
    EXPECT_TRUE(yields.took(kShort));
  }
}

TEST(Yields, AreLeftOutForLongerEveryTimeTheyTakeLong) {
  Yields yields;
  EXPECT_EQ(waits_without(yields), Yields::kFewest);
  EXPECT_EQ(waits_without(yields), 2 * Yields::kFewest);
  for (int i = 0; i < 20; ++i) waits_without(yields);
  EXPECT_EQ(waits_without(yields), Yields::kMost);
}

TEST(Yields, AreTrustedAgainAfterWaitsThatWentWell) {
  Yields yields;
  for (int i = 0; i < 20; ++i) waits_without(yields);
  for (int wait = 0; wait < 100; ++wait) {
    EXPECT_TRUE(yields.worthwhile());
    yields.were_enough();
  }
  EXPECT_LE(waits_without(yields), 2 * Yields::kFewest);
}

}  // namespace
}  // namespace lockstep::shared
