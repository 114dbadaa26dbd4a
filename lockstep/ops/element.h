// Elements of the floating-point types as doubles, and back with a single rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/math/half.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::ops {

inline double to_double(double x) { return x; }
inline double to_double(float x) { return x; }
inline double to_double(Half x) { return to_float(x); }
inline double to_double(BFloat16 x) { return to_float(x); }

// A float on the way to a narrower type. Rounding to nearest twice can miss the nearest: a double
// just above the middle of two narrow numbers may become the float in the middle. So what a float
// cannot hold is marked in its last bit, which the narrower type does not have ("round to odd").
inline float to_odd_float(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || std::isnan(x)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

// x rounded to T, to nearest, ties to even.
template <class T>
T rounded(double x);
template <>
inline double rounded<double>(double x) {
  return x;
}
template <>
inline float rounded<float>(double x) {
  return static_cast<float>(x);
}
template <>
inline Half rounded<Half>(double x) {
  return to_half(to_odd_float(x));
}
template <>
inline BFloat16 rounded<BFloat16>(double x) {
  return to_bfloat16(to_odd_float(x));
}

// Calls f with a value of dtype's C++ type, where that is a floating-point type.
template <class F>
decltype(auto) with_float_type(DType dtype, F&& f) {
  return with_type(dtype, [&]<class T>(T x) -> decltype(f(float{})) {
    if constexpr (std::is_integral_v<T>) {
      fail(ErrorCode::kInvalidArgument, "{} is not a floating-point type", name(dtype));
    } else {
      return f(x);
    }
  });
}

}  // namespace lockstep::ops
