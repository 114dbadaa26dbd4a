#include "lockstep/base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(FormatDuration, HasTwoUnitsAndRoundsIntoTheNext) {
  struct Case {
    double seconds;
    const char* text;
  };
  const Case cases[] = {
      {0, "0.0s"},
      {4.21, "4.2s"},
      {9.96, "10s"},
      {59.4, "59s"},
      {59.6, "1m 00s"},
      {754.2, "12m 34s"},
      {3599.4, "59m 59s"},
      {3599.6, "1h 00m"},
      {3720, "1h 02m"},
      {86'369, "23h 59m"},
      {86'371, "1d 00h"},
      {183'600, "2d 03h"},
      {std::numeric_limits<double>::infinity(), "ages"},
      {std::nan(""), "ages"},
      {-1, "ages"},
  };
  for (const Case& one : cases) EXPECT_EQ(format_duration(one.seconds), one.text) << one.seconds;
}

}  // namespace
}  // namespace lockstep
