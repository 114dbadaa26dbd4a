// The plain twin of the vector kernels: one element at a time, as the contract reads.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lockstep/comm/reduce/kernels.h"

namespace lockstep::reduce::scalar {
namespace {

// The type in which elements are combined.
template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<Half> {
  using type = float;
};
template <>
struct Wide<BFloat16> {
  using type = float;
};

template <class T>
auto widen(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return to_float(x);
  }
}

template <class T>
T narrow(typename Wide<T>::type x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
    if (std::isnan(x)) x = std::numeric_limits<decltype(x)>::quiet_NaN();
    if constexpr (std::is_same_v<T, Half>) {
      return to_half(x);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return to_bfloat16(x);
    } else {
      return x;
    }
  }
}

// Wraps around in integers; unsigned long long keeps small types from promoting to int.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
  } else {
    return a + b;
  }
}

template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
  } else {
    return a * b;
  }
}

// NaN if either is; -0 lies below +0.
template <class T>
T lesser(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <class T>
T greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <class T>
T fold(ReduceOp::Kind op, T a, T b) {
  switch (op) {
    case ReduceOp::kProd:
      return multiply(a, b);
    case ReduceOp::kMin:
      return lesser(a, b);
    case ReduceOp::kMax:
      return greater(a, b);
    default:
      return add(a, b);
  }
}

template <class T>
T quotient(T x, int divisor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<long long>(x) / divisor);
  } else {
    return x / static_cast<T>(divisor);
  }
}

template <class T>
void combine(const KernelCall& call) {
  const auto element = [&](std::size_t input, std::size_t i) {
    T x;
    std::memcpy(&x, call.inputs[input] + i * sizeof(T), sizeof(T));
    return widen(x);
  };
  for (std::size_t i = 0; i < call.count; ++i) {
    auto sum = element(0, i);
    for (std::size_t input = 1; input < call.input_count; ++input) {
      sum = fold(call.op, sum, element(input, i));
    }
    if (call.op == ReduceOp::kMean) sum = quotient(sum, call.divisor);
    const T result = narrow<T>(sum);
    for (std::size_t output = 0; output < call.output_count; ++output) {
      std::memcpy(call.outputs[output] + i * sizeof(T), &result, sizeof(T));
    }
  }
}

}  // namespace

const ReduceKernels reduce_kernels = {[](const KernelCall& call) {
  with_type(call.dtype, [&](auto x) { combine<decltype(x)>(call); });
}};

}  // namespace lockstep::reduce::scalar
