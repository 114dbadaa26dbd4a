// Floats, their bits and the 16-bit types on a GPU, as base/simd/lanes.inl has them on the CPU: the
// same bits for all numbers. Arithmetic names its rounding, so that nothing is fused.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

inline constexpr std::uint32_t kNanBits = 0x7fc00000;
inline constexpr int kMagnitudeOfInfinity = 0x7f800000;

__device__ __forceinline__ int magnitude_of(float x) {
  return static_cast<int>(__float_as_uint(x) & 0x7fffffffu);
}
__device__ __forceinline__ float finite_or_zero(float x) {
  return magnitude_of(x) < kMagnitudeOfInfinity ? x : 0.0f;
}

__device__ __forceinline__ std::uint16_t bf16_of(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const std::uint32_t quiet = bits | 0x400000;
  return static_cast<std::uint16_t>((magnitude_of(x) > kMagnitudeOfInfinity ? quiet : rounded) >>
                                    16);
}
__device__ __forceinline__ float float_of_bf16(std::uint16_t word) {
  return __uint_as_float(static_cast<std::uint32_t>(word) << 16);
}

__device__ __forceinline__ std::uint16_t half_of(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {
    // Subnormal: the unit of a sum with 0.5 is 2^-24, and the addition rounds.
    half = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), 0.5f)) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return static_cast<std::uint16_t>(half | sign);
}
__device__ __forceinline__ float float_of_half(std::uint16_t word) {
  const std::uint32_t sign = static_cast<std::uint32_t>(word & 0x8000u) << 16;
  const std::uint32_t magnitude = word & 0x7fffu;
  if (magnitude >= 0x7c00u) return __uint_as_float(sign | ((magnitude << 13) + 0x70000000u));
  if (magnitude < 0x400u) {
    const float value = __fmul_rn(static_cast<float>(magnitude), 0x1p-24f);
    return __uint_as_float(sign | __float_as_uint(value));
  }
  return __uint_as_float(sign | ((magnitude << 13) + 0x38000000u));
}

// The element types of parts and gradients.
__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(BFloat16 x) { return float_of_bf16(x.bits); }
__device__ __forceinline__ float widened(Half x) { return float_of_half(x.bits); }
template <class T>
__device__ __forceinline__ T narrowed(float x) {
  if constexpr (std::is_same_v<T, BFloat16>) return {bf16_of(x)};
  if constexpr (std::is_same_v<T, Half>) return {half_of(x)};
  if constexpr (std::is_same_v<T, float>) return x;
}

// Numbers of a payload, little-endian and at any address.
__device__ __forceinline__ std::uint16_t load_16(const std::byte* at) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(at);
  return static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
}
__device__ __forceinline__ std::uint32_t load_32(const std::byte* at) {
  return load_16(at) | static_cast<std::uint32_t>(load_16(at + 2)) << 16;
}
__device__ __forceinline__ void store_16(std::byte* at, std::uint32_t word) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(at);
  bytes[0] = static_cast<std::uint8_t>(word);
  bytes[1] = static_cast<std::uint8_t>(word >> 8);
}
__device__ __forceinline__ void store_32(std::byte* at, std::uint32_t word) {
  store_16(at, word);
  store_16(at + 2, word >> 16);
}

}  // namespace lockstep::cuda
