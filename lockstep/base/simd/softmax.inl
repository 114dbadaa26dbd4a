// What softmax needs of vectors: the larger of two scores, and e^x for scores minus the largest.
// Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"

namespace lockstep::simd {
namespace {

// One instruction. Of a NaN and a number, whichever of them.
inline Floats larger(Floats a, Floats b) {
#if defined(__ARM_NEON)
  return vmaxq_f32(a, b);
#elif LOCKSTEP_VECTOR_BYTES == 64
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif LOCKSTEP_VECTOR_BYTES == 32
  return _mm256_max_ps(a, b);
#else
  return max(a, b);
#endif
}

// e^x to 2^-22 of it, for x up to 88; 0 below -87.3, so that masked scores of -infinity vanish, and
// NaN stays NaN. Half as many instructions as exp(), which takes any x.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), with the q of degree 3 whose largest
// relative error is smallest (Remez).
inline Floats exp_of_score(Floats x) {
  constexpr float kLowest = -87.3f;
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693145751953125f;  // few bits: n times it is exact
  constexpr float kLn2Low = 1.42860682030941723e-6f;
  // Adding it rounds to an integer, n, whose lowest bits then are those of n + 127: the exponent of
  // 2^n.
  constexpr float kRounder = 0x1.8p23f + 127;
  const Floats clamped = larger(splat(kLowest), x);
  const Floats shifted = clamped * kLog2e + kRounder;
  const Floats n = shifted - kRounder;
  const Floats r = (clamped - n * kLn2High) - n * kLn2Low;
  Floats q = splat(0x1.106250p-7f);
  q = q * r + 0x1.572a64p-5f;
  q = q * r + 0x1.5557b0p-3f;
  q = q * r + 0x1.fffdfcp-2f;
  const Floats p = q * (r * r) + r;
  const Floats power = (Floats)((Ints)shifted << 23);
  const Floats result = p * power + power;
  return x < splat(kLowest) ? Floats{} : result;
}

}  // namespace
}  // namespace lockstep::simd
