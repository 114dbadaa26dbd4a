// Vectors of double, for sums that floats cannot hold. Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"

namespace lockstep::simd {
namespace {

#if defined(__ARM_NEON)
inline Doubles low_half(Floats x) { return vcvt_f64_f32(vget_low_f32(x)); }
inline Doubles high_half(Floats x) { return vcvt_high_f64_f32(x); }
#elif LOCKSTEP_VECTOR_BYTES == 64
inline Doubles low_half(Floats x) {
  return _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, x, 0));
}
inline Doubles high_half(Floats x) {
  return _mm512_maskz_cvtps_pd(0xff, _mm512_maskz_extractf32x8_ps(0xff, x, 1));
}
#elif LOCKSTEP_VECTOR_BYTES == 32
inline Doubles low_half(Floats x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
inline Doubles high_half(Floats x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
#else
inline Doubles low_half(Floats x) {
  Doubles y;
  for (std::size_t i = 0; i < kLanes / 2; ++i) y[i] = static_cast<double>(x[i]);
  return y;
}
inline Doubles high_half(Floats x) {
  Doubles y;
  for (std::size_t i = 0; i < kLanes / 2; ++i) y[i] = static_cast<double>(x[kLanes / 2 + i]);
  return y;
}
#endif

inline double sum_of_lanes(Doubles x) {
  double sum = 0;
  for (std::size_t i = 0; i < kLanes / 2; ++i) sum += x[i];
  return sum;
}

}  // namespace
}  // namespace lockstep::simd
