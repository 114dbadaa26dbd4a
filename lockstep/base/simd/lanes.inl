// One lane at a time: floats, their bits, and the 16-bit types, for loops that the compiler makes
// vectors of.
//
// base/math/half.h has the same conversions with early returns; these compute every case and
// choose. They have internal linkage for the reason that vector.inl gives, and a test compares the
// two.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace lockstep::simd {
namespace {

// At any address in a payload. (`auto` would lose that.)
typedef std::uint16_t Stored16 __attribute__((aligned(1), may_alias));
typedef float StoredFloat __attribute__((aligned(1), may_alias));

constexpr std::uint32_t kNanBits = 0x7fc00000;

inline std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
inline float float_of_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// condition ? a : b without a branch, which the compiler would keep where arithmetic stands in it.
inline std::uint32_t choose(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

// The magnitude of a float as an integer: larger ones are larger, infinity and NaN largest.
inline std::int32_t magnitude_of(float x) {
  return static_cast<std::int32_t>(bits_of(x) & 0x7fffffffu);
}
constexpr std::int32_t kMagnitudeOfInfinity = 0x7f800000;

inline float finite_or_zero(float x) { return magnitude_of(x) < kMagnitudeOfInfinity ? x : 0; }

inline std::uint16_t bf16_of(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const std::uint32_t quiet = bits | 0x400000;
  return static_cast<std::uint16_t>((magnitude_of(x) > kMagnitudeOfInfinity ? quiet : rounded) >>
                                    16);
}
inline float float_of_bf16(std::uint16_t word) {
  return float_of_bits(static_cast<std::uint32_t>(word) << 16);
}

// And to_halves: words[i] = half of x[i] * factor, for kCount elements.
#if defined(__aarch64__)
inline std::uint16_t half_of(float x) {
  return __builtin_bit_cast(std::uint16_t, static_cast<__fp16>(x));
}
// GCC 12 would convert one by one.
template <std::size_t kCount>
inline void to_halves(const float* x, float factor, Stored16* words) {
  static_assert(kCount % 4 == 0);
  auto* bytes = reinterpret_cast<std::uint8_t*>(words);  // for they lie at any address
  for (std::size_t i = 0; i < kCount; i += 4) {
    vst1_u8(bytes + 2 * i, vreinterpret_u8_f16(vcvt_f16_f32(vld1q_f32(x + i) * factor)));
  }
}
inline float float_of_half(std::uint16_t word) {
  return static_cast<float>(__builtin_bit_cast(__fp16, word));
}
#else
inline std::uint16_t half_of(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  // The unit of a sum with 0.5 is that of subnormal halves, 2^-24, and the FPU rounds.
  const std::uint32_t subnormal = bits_of(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
  const std::uint32_t nan_payload = 0x200 | ((magnitude >> 13) & 0x3ff);
  const std::uint32_t special = 0x7c00 | choose(magnitude > 0x7f800000, nan_payload, 0);
  const std::uint32_t half =
      choose(magnitude >= 0x477ff000, special, choose(magnitude < 0x38800000, subnormal, normal));
  return static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000));
}
template <std::size_t kCount>
inline void to_halves(const float* x, float factor, Stored16* words) {
  for (std::size_t i = 0; i < kCount; ++i) words[i] = half_of(x[i] * factor);
}
inline float float_of_half(std::uint16_t word) {
  const std::uint32_t magnitude = word & 0x7fffu;
  const std::uint32_t normal = (magnitude << 13) + 0x38000000;
  const std::uint32_t special = (magnitude << 13) + 0x70000000;
  const std::uint32_t subnormal =
      bits_of(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  const std::uint32_t bits =
      choose(magnitude >= 0x7c00, special, choose(magnitude < 0x400, subnormal, normal));
  return float_of_bits(bits | (static_cast<std::uint32_t>(word & 0x8000u) << 16));
}
#endif

}  // namespace
}  // namespace lockstep::simd
