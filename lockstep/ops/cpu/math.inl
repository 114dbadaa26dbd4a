// Functions of vectors of float. Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/ops/cpu/vector.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// e^x to 2 units in the last place. Below -87.3 it is 0 (so that masked scores of -infinity
// vanish), above 88.7 infinity; NaN stays NaN.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7, whose error of
// r^8 / 40320 is below 2^-27 there; 2^n by its exponent bits.
inline Floats exp(Floats x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693145751953125f;  // few bits: n times it is exact
  constexpr float kLn2Low = 1.42860682030941723e-6f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats clamped = min(max(x, splat(-87.3f)), splat(88.7f));
  const Floats shifted = clamped * kLog2e + kRounder;
  const Floats n = shifted - kRounder;
  const Floats r = (clamped - n * kLn2High) - n * kLn2Low;
  Floats p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r;
  // n reaches 128, for which there is no float of one exponent: two factors.
  const Ints whole = (Ints)shifted - (Ints)splat(kRounder);
  const Ints half = whole >> 1;
  const Floats low = (Floats)((half + 127) << 23);
  const Floats high = (Floats)((whole - half + 127) << 23);
  Floats result = (p * low + low) * high;
  result = x < splat(-87.3f) ? splat(0) : result;
  result = x > splat(88.7f) ? splat(__builtin_inff()) : result;
  return x == x ? result : x;
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
