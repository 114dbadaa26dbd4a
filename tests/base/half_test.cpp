#include "lockstep/base/math/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

TEST(Half, EveryFiniteValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    if ((bits & 0x7fffu) > 0x7c00u) {
      EXPECT_TRUE(std::isnan(to_float(half)));
      EXPECT_TRUE(std::isnan(to_float(to_half(to_float(half)))));
    } else {
      ASSERT_EQ(to_half(to_float(half)), half) << bits;
    }
  }
}

TEST(Half, MatchesTheCompilersConversion) {
  for (std::uint64_t bits = 0; bits < 0x100000000ull; bits += 4099) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(value)) continue;
#if defined(__aarch64__)
    const auto expected = static_cast<__fp16>(value);
    ASSERT_EQ(to_half(value).bits, std::bit_cast<std::uint16_t>(expected)) << value;
#endif
  }
  EXPECT_EQ(to_half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_half(0x1p-25f).bits, 0);
  EXPECT_EQ(to_half(std::nextafter(0x1p-25f, 1.0f)).bits, 1);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value))) continue;
    ASSERT_EQ(to_bfloat16(to_float(value)), value);
  }
}

}  // namespace
}  // namespace lockstep
