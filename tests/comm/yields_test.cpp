#include "lockstep/comm/shared/yields.h"

#include <gtest/gtest.h>

namespace lockstep::shared {
namespace {

using std::chrono::milliseconds;
using Time = Yields::Time;

constexpr Time kStart{std::chrono::seconds(1000)};

// When yields are worthwhile again after a long one that ended at `now`.
Time resumed_after(Yields& yields, Time now) {
  EXPECT_FALSE(yields.took(now - Yields::kLong, now));
  while (!yields.worthwhile(now)) now += std::chrono::microseconds(100);
  return now;
}

TEST(Yields, GoOnWhileTheyAreShort) {
  Yields yields;
  EXPECT_TRUE(yields.worthwhile(kStart));
  EXPECT_TRUE(yields.took(kStart, kStart + Yields::kLong - std::chrono::nanoseconds(1)));
  EXPECT_TRUE(yields.worthwhile(kStart));
}

TEST(Yields, AreTakenUpAgainAtTheSameMomentByAll) {
  for (const milliseconds later : {milliseconds(0), milliseconds(3), milliseconds(7)}) {
    Yields yields;
    EXPECT_EQ(resumed_after(yields, kStart + later), kStart + Yields::kShortest);
  }
}

TEST(Yields, AreLeftOutForLongerWhereTheySoonTakeLongAgain) {
  Yields yields;
  Time now = resumed_after(yields, kStart);
  now = resumed_after(yields, now);
  EXPECT_EQ(now.time_since_epoch() % (2 * Yields::kShortest), milliseconds(0));
  for (int i = 0; i < 10; ++i) now = resumed_after(yields, now);
  EXPECT_EQ(now.time_since_epoch() % Yields::kLongest, milliseconds(0));
  EXPECT_EQ(resumed_after(yields, now), now + Yields::kLongest);
}

TEST(Yields, AreTrustedAgainAfterAWhileWithoutALongOne) {
  Yields yields;
  Time now = kStart;
  for (int i = 0; i < 10; ++i) now = resumed_after(yields, now);
  now += Yields::kLongest;
  EXPECT_LE(resumed_after(yields, now), now + Yields::kShortest);
}

}  // namespace
}  // namespace lockstep::shared
