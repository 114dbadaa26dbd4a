// Functions of vectors of float. Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"

namespace lockstep::simd {
namespace {

inline Floats absolute(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }
inline Floats minus_absolute(Floats x) { return (Floats)((Words)x | 0x80000000u); }

// x as n ln 2 + r with |r| <= ln 2 / 2, n whole and between -126 and 128.
struct Exponent {
  Floats shifted;  // n in the last bits, from kShift on
  Floats r;
};
constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
constexpr float kLeastExponent = -87.3f;
constexpr float kMostExponent = 88.7f;

inline Exponent split_exponent(Floats x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693145751953125f;  // few bits: n times it is exact
  constexpr float kLn2Low = 1.42860682030941723e-6f;
  const Floats shifted = x * kLog2e + kShift;
  const Floats n = shifted - kShift;
  return {shifted, (x - n * kLn2High) - n * kLn2Low};
}

// e^r - 1 by its Taylor polynomial of degree 7, whose error of r^8 / 40320 is below 2^-27; in pairs
// of terms, which do not wait for each other.
inline Floats exp_minus_one(Floats r) {
  const Floats square = r * r;
  const Floats a = r * (1.0f / 6) + 0.5f;
  const Floats b = r * (1.0f / 120) + 1.0f / 24;
  const Floats c = r * (1.0f / 5040) + 1.0f / 720;
  return ((c * square + b) * square + a) * square + r;
}

// e^x to 2 units in the last place. Below -87.3 it is 0 (so that masked scores of -infinity
// vanish), above 88.7 infinity; NaN stays NaN.
inline Floats exp(Floats x) {
  const Exponent e = split_exponent(min(splat(kMostExponent), max(splat(kLeastExponent), x)));
  const Floats p = exp_minus_one(e.r);
  // n reaches 128, for which there is no float of one exponent: two factors.
  const Ints whole = (Ints)e.shifted - (Ints)splat(kShift);
  const Ints half = whole >> 1;
  const Floats low = (Floats)((half + 127) << 23);
  const Floats high = (Floats)((whole - half + 127) << 23);
  Floats result = (p * low + low) * high;
  result = x < splat(kLeastExponent) ? splat(0) : result;
  return x > splat(kMostExponent) ? splat(__builtin_inff()) : result;
}

// The same for x <= 0, in fewer steps.
inline Floats exp_not_above_zero(Floats x) {
  const Exponent e = split_exponent(max(splat(kLeastExponent), x));
  const Floats p = exp_minus_one(e.r);
  const Floats power = (Floats)(((Words)e.shifted << 23) + (127u << 23));
  return x < splat(kLeastExponent) ? splat(0) : p * power + power;
}

// Two shares of 1. Each is computed by itself, so that it is exact to a few units in its own last
// place however small it is.
struct Shares {
  Floats below;
  Floats above;
};

// 1 / (1 + e^-x) and 1 / (1 + e^x).
inline Shares sigmoids(Floats x) {
  const Floats e = exp_not_above_zero(minus_absolute(x));
  const Floats large = 1.0f / (1.0f + e);
  const Floats small = e * large;
  const Ints positive = x > splat(0);
  return {positive ? large : small, positive ? small : large};
}

// The normal distribution.
struct Normal {
  Floats below;    // the probability of a number below z
  Floats density;  // at z
};

// With a = |z|, the probability of a number below -a is e^(-a^2/2) m(a), and m(a) falls slowly,
// like 1 / a. So m is t times a polynomial of t = 1 / (1 + 0.35 a): the minimax one of degree 8 for
// a up to 13.3, where e^(-a^2/2) becomes 0, exact to 3.2e-8 of its value. It is written in w, which
// goes from -1 to 1, so that its rounding errors stay small. All in all `below` is exact to 6 units
// in the last place, and to a^2 / 2 more in the tail, where a^2 is rounded.
inline Normal normal(Floats z) {
  constexpr float kHalfWidth = 0.41158267020335986f;  // of the range of t, which ends at 1
  const Floats a = min(splat(16), absolute(z));
  const Floats e = exp_not_above_zero(a * a * -0.5f);
  const Floats t = 1.0f / (a * 0.35f + 1.0f);
  const Floats w = t * (1 / kHalfWidth) + (1 - 1 / kHalfWidth);
  Floats p = splat(-2.39756064801e-5f);
  p = p * w + 1.35336672747e-5f;
  p = p * w + 2.6604229579e-4f;
  p = p * w - 3.46521655172e-4f;
  p = p * w - 2.89377193308e-3f;
  p = p * w + 3.43265606745e-3f;
  p = p * w + 5.11475817599e-2f;
  p = p * w + 1.62559147696e-1f;
  p = p * w + 2.85845291867e-1f;
  const Floats tail = p * t * e;
  constexpr float kDensityAtZero = 0.398942280401432678f;
  return {z < splat(0) ? tail : 1.0f - tail, e * kDensityAtZero};
}

}  // namespace
}  // namespace lockstep::simd
