// The element types of tensors and collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/base/math/half.h"

namespace lockstep {

enum class DType : std::uint8_t { kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64 };

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                       DType::kI8,  DType::kU8,  DType::kI32, DType::kI64};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

std::string_view name(DType dtype);  // "f32", "bf16", ...
std::optional<DType> dtype_from_name(std::string_view name);

// dtype_of<T>: the DType of a C++ element type; no value for any other type.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};

template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// A C++ type that tensors have and collectives move: float, double, Half, BFloat16, int8_t,
// uint8_t, int32_t or int64_t.
template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};

// Calls f with a value-initialised element of dtype's C++ type: with_type(d, [](auto x) { ... }).
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kF16:
      return f(Half{});
    case DType::kBF16:
      return f(BFloat16{});
    case DType::kI8:
      return f(std::int8_t{});
    case DType::kU8:
      return f(std::uint8_t{});
    case DType::kI32:
      return f(std::int32_t{});
    case DType::kI64:
      return f(std::int64_t{});
  }
  __builtin_unreachable();
}

}  // namespace lockstep
