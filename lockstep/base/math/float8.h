// The two 8-bit floating-point formats of OCP's FP8. They store, a byte each; arithmetic happens in
// float.
//
//   E4M3   1 sign, 4 exponent, 3 fraction bits; up to 448, steps of 2^-9 around 0; no infinity
//   E5M2   1 sign, 5 exponent, 2 fraction bits; up to 57344, steps of 2^-16 around 0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep {

enum class Float8 : std::uint8_t { kE4M3, kE5M2 };

// The largest finite number.
constexpr float largest(Float8 format) { return format == Float8::kE4M3 ? 448.0f : 57344.0f; }

// Rounds to nearest, ties to even. What is larger than the largest number, infinity too, becomes
// that; a NaN stays one.
inline std::uint8_t to_float8(float x, Float8 format) {
  const bool wide = format == Float8::kE5M2;
  const int fraction = wide ? 2 : 3;
  const int bias = wide ? 15 : 7;
  const auto sign = static_cast<std::uint8_t>(std::signbit(x) ? 0x80 : 0);
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<std::uint8_t>(sign | 0x7f);
  if (magnitude >= largest(format)) {
    return static_cast<std::uint8_t>(sign | (wide ? 0x7b : 0x7e));
  }
  // The last place of the number's binade, which subnormal numbers share with the least normal one.
  const int least = 1 - bias;
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), least) : least;
  const float places = std::nearbyint(std::ldexp(magnitude, fraction - exponent));
  // A carry out of the fraction is a carry into the exponent.
  const int code = static_cast<int>(places) + ((exponent - least) << fraction);
  return static_cast<std::uint8_t>(sign | code);
}

inline float to_float(std::uint8_t bits, Float8 format) {
  const bool wide = format == Float8::kE5M2;
  const int fraction = wide ? 2 : 3;
  const int bias = wide ? 15 : 7;
  const int magnitude = bits & 0x7f;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  const bool is_special = wide ? magnitude >= 0x7c : magnitude == 0x7f;
  if (is_special) return sign * (magnitude == 0x7c ? HUGE_VALF : std::nanf(""));
  const int exponent = magnitude >> fraction;
  const int places = (magnitude & ((1 << fraction) - 1)) + (exponent > 0 ? 1 << fraction : 0);
  return sign * std::ldexp(static_cast<float>(places), std::max(exponent, 1) - bias - fraction);
}

// What numbers of up to `amax` are multiplied with before they are stored: the largest power of two
// that keeps them in the format's range, so that multiplying rounds nothing.
inline float scale_for(float largest, float amax) {
  const float ratio = std::fmin(largest / amax, 0x1p100f);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(ratio) & 0x7f800000u);
}

}  // namespace lockstep
