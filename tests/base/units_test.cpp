#include "lockstep/base/text/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(ParseBytes, TakesWhatIsPrinted) {
  struct Case {
    const char* text;
    std::size_t bytes;
  };
  const Case cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"8 B", 8},
      {"10kB", 10'000},
      {"10 kB", 10'000},
      {"10KB", 10'000},
      {"1.1k", 1'100},
      {"0.29K", 290},
      {"2.3M", 2'300'000},
      {"1.2PB", 1'200'000'000'000'000},
      {"64KiB", 65'536},
      {"1.5Gi", 1'610'612'736},
      {"1.73GiB", 1'857'573'355},  // 1,857,573,355.52
      {"1.73 GiB", 1'857'573'355},
  };
  for (const Case& one : cases) EXPECT_EQ(parse_bytes(one.text), one.bytes) << one.text;
}

TEST(ParseBytes, ReadsBackEverySizeToItsLastPrintedDigit) {
  for (std::size_t bytes = 1; bytes < std::size_t{1} << 50; bytes += bytes / 7 + 1) {
    const auto size = static_cast<double>(bytes);
    for (const std::string& text : {format_bytes(size), format_si(size, "B")}) {
      const auto back = static_cast<double>(parse_bytes(text));
      EXPECT_NEAR(back, size, 0.05 * size) << text;
    }
  }
}

TEST(ParseBytes, SaysWhatIsWrong) {
  const auto refusal = [](const char* text) {
    try {
      parse_bytes(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("12.5"), HasSubstr("'12.5' is not a whole number of bytes; write it like"));
  EXPECT_THAT(refusal("0.7B"), HasSubstr("not a whole number"));
  EXPECT_THAT(refusal("5XB"), HasSubstr("the unknown unit 'X'; write it like"));
  EXPECT_THAT(refusal("lots"), HasSubstr("does not start with a number"));
  EXPECT_THAT(refusal("9e9PB"), HasSubstr("more than any memory has"));
}

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
