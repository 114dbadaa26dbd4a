// The two formats of 8 bits, code by code.
#include "lockstep/base/math/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

constexpr Float8 kFormats[] = {Float8::kE4M3, Float8::kE5M2};

// The non-negative finite numbers of a format as its definition has them, by code.
std::vector<float> table(Float8 format) {
  const bool wide = format == Float8::kE5M2;
  const int fraction = wide ? 2 : 3, bias = wide ? 15 : 7, last = wide ? 0x7b : 0x7e;
  std::vector<float> numbers;
  for (int code = 0; code <= last; ++code) {
    const int exponent = code / (1 << fraction);
    const float part =
        static_cast<float>(code % (1 << fraction)) / static_cast<float>(1 << fraction);
    numbers.push_back(exponent == 0 ? std::exp2(static_cast<float>(1 - bias)) * part
                                    : std::exp2(static_cast<float>(exponent - bias)) * (1 + part));
  }
  return numbers;
}

TEST(Float8, ReadsAllCodes) {
  for (const Float8 format : kFormats) {
    const std::vector<float> numbers = table(format);
    for (int code = 0; code < 128; ++code) {
      const float number = to_float(static_cast<std::uint8_t>(code), format);
      const float negative = to_float(static_cast<std::uint8_t>(code | 0x80), format);
      const auto index = static_cast<std::size_t>(code);
      if (index < numbers.size()) {
        EXPECT_EQ(number, numbers[index]) << code;
        EXPECT_EQ(negative, -numbers[index]) << code;
        EXPECT_TRUE(std::signbit(negative)) << code;
      } else if (format == Float8::kE5M2 && code == 0x7c) {
        EXPECT_TRUE(std::isinf(number) && number > 0 && std::isinf(negative) && negative < 0);
      } else {
        EXPECT_TRUE(std::isnan(number) && std::isnan(negative)) << code;
      }
    }
    EXPECT_EQ(numbers.back(), largest(format));
  }
}

TEST(Float8, RoundsToTheNearestAndTiesToTheEvenCode) {
  for (const Float8 format : kFormats) {
    const std::vector<float> numbers = table(format);
    for (std::size_t code = 0; code < numbers.size(); ++code) {
      const auto here = static_cast<std::uint8_t>(code);
      EXPECT_EQ(to_float8(numbers[code], format), here);
      EXPECT_EQ(to_float8(-numbers[code], format), here | 0x80);
      if (code + 1 == numbers.size()) break;
      const float middle = (numbers[code] + numbers[code + 1]) / 2;  // exact in f32
      const auto next = static_cast<std::uint8_t>(code + 1);
      EXPECT_EQ(to_float8(middle, format), code % 2 == 0 ? here : next) << middle;
      EXPECT_EQ(to_float8(std::nextafter(middle, 0.0f), format), here) << middle;
      EXPECT_EQ(to_float8(std::nextafter(middle, 1e9f), format), next) << middle;
    }
  }
}

TEST(Float8, SaturatesAndKeepsNaN) {
  for (const Float8 format : kFormats) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float large : {largest(format) * 1.01f, 1e30f, infinity}) {
      EXPECT_EQ(to_float(to_float8(large, format), format), largest(format));
      EXPECT_EQ(to_float(to_float8(-large, format), format), -largest(format));
    }
    EXPECT_TRUE(std::isnan(to_float(to_float8(std::nanf(""), format), format)));
    EXPECT_EQ(to_float8(1e-30f, format), 0);
  }
}

TEST(Float8, ScalesByThePowerOfTwoThatJustFits) {
  EXPECT_EQ(scale_for(448, 448), 1);
  EXPECT_EQ(scale_for(448, 449), 0.5f);
  EXPECT_EQ(scale_for(448, 7), 64);
  EXPECT_EQ(scale_for(448, 3.6f), 64);
  EXPECT_EQ(scale_for(57344, 57344.0f * 1024), 0x1p-10f);
  EXPECT_EQ(scale_for(448, 1e-44f), 0x1p100f);
}

}  // namespace
}  // namespace lockstep
