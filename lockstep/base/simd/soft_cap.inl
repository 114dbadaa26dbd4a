// Soft caps of vectors of float: c = cap tanh(x / cap). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/math.inl"

namespace lockstep::simd {
namespace {

// With u = 1 - e^(-2|x|), tanh |x| is u / (2 - u). Where x is small, u is the polynomial of e^r - 1
// alone, so nothing cancels.
inline Floats tanh(Floats x) {
  const Exponent e = split_exponent(max(splat(kLeastExponent), minus_absolute(x) * 2));
  const Floats power = (Floats)(((Words)e.shifted << 23) + (127u << 23));
  const Floats u = (1.0f - power) - exp_minus_one(e.r) * power;
  const Floats magnitude = u / (2.0f - u);
  return (Floats)((Words)magnitude | ((Words)x & 0x80000000u));
}

inline Floats soft_cap(Floats x, float cap) { return tanh(x * (1 / cap)) * cap; }

// The derivative of c by x, 1 - (c / cap)^2; as a product, so that it stays exact where c is near
// the cap. 0 for a hidden score, which is -infinity.
inline Floats soft_cap_slope(Floats c, float cap) {
  const Floats finite = max(c, splat(-cap));
  return (cap - finite) * (cap + finite) * (1 / (cap * cap));
}

}  // namespace
}  // namespace lockstep::simd
