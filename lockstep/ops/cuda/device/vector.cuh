// Elements in registers: vector loads and stores of up to 16 bytes each, and conversions between
// the element types and f32.
//
// A Pack<T, N> holds N elements as they lie in memory, a Floats<N> holds them as f32. A load of a
// pack needs an address that is a multiple of its size, or of 16 bytes if the pack is larger. N = 1
// works at any address. So kernels are templates of N, and the host picks kPerVector<T> or 1.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/ops/arguments.h"

namespace lockstep::cuda {

// ---- on the host

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f with the TypeTag of the device type of a compute type.
template <class F>
void with_compute_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16:
      return f(TypeTag<__nv_bfloat16>{});
    case DType::kF16:
      return f(TypeTag<__half>{});
    default:
      return f(TypeTag<float>{});
  }
}

template <class T>
T* data_of(const Tensor& tensor) {
  return ops::is_given(tensor) ? reinterpret_cast<T*>(tensor.data()) : nullptr;
}

// Whether N elements of T can be loaded at once from the beginning of the tensor. A tensor that is
// not given is never loaded and always passes.
template <class T, int N>
bool allows_packs(const Tensor& tensor) {
  constexpr std::size_t kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  return !ops::is_given(tensor) || reinterpret_cast<std::uintptr_t>(tensor.data()) % kBytes == 0;
}
template <class T, int N, class... Tensors>
bool all_allow_packs(const Tensors&... tensors) {
  return (allows_packs<T, N>(tensors) && ...);
}

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// ---- on the device

// The number of elements of a vector of 16 bytes.
template <class T>
inline constexpr int kPerVector = static_cast<int>(16 / sizeof(T));

// f32 or f64.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};
// 16-bit elements stay packed two to a word, the first in the lower half. Unpacked, each would take
// a register.
template <class T, int N>
requires(sizeof(T) == 2) struct alignas(N * 2 < 16 ? (N == 1 ? 4 : N * 2) : 16) Pack<T, N> {
  std::uint32_t words[(N + 1) / 2];
};

template <int N>
struct Floats {
  float at[N];
  __device__ __forceinline__ float& operator[](int i) { return at[i]; }
  __device__ __forceinline__ float operator[](int i) const { return at[i]; }
};

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  constexpr int kBytes = static_cast<int>(N * sizeof(T));
  Pack<T, N> pack;
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<uint4*>(&pack)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(&pack) = *reinterpret_cast<const uint2*>(from);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<std::uint32_t*>(&pack) = *reinterpret_cast<const std::uint32_t*>(from);
  } else {
    static_assert(kBytes == 2);
    pack.words[0] = *reinterpret_cast<const std::uint16_t*>(from);
  }
  return pack;
}

template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
  constexpr int kBytes = static_cast<int>(N * sizeof(T));
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(&pack)[i];
    }
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(&pack);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(&pack);
  } else {
    static_assert(kBytes == 2);
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(pack.words[0]);
  }
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

// Rounds to nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// The two halves of a word as numbers, and back.
template <class T>
__device__ __forceinline__ float2 unpacked(std::uint32_t word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
}
template <class T>
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&two);
  } else {
    const __half2 two = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&two);
  }
}

// Of f32, bf16 or f16.
template <class T, int N>
__device__ __forceinline__ Floats<N> to_floats(const Pack<T, N>& pack) {
  Floats<N> floats;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) floats[i] = pack.at[i];
  } else if constexpr (N == 1) {
    floats[0] = unpacked<T>(pack.words[0]).x;
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float2 two = unpacked<T>(pack.words[i]);
      floats[2 * i] = two.x;
      floats[2 * i + 1] = two.y;
    }
  }
  return floats;
}

template <class T, int N>
__device__ __forceinline__ Pack<T, N> rounded(const Floats<N>& floats) {
  Pack<T, N> pack;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = floats[i];
  } else if constexpr (N == 1) {
    pack.words[0] = packed<T>(floats[0], 0.0f);
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) pack.words[i] = packed<T>(floats[2 * i], floats[2 * i + 1]);
  }
  return pack;
}

template <int N, class T>
__device__ __forceinline__ Floats<N> load_floats(const T* from) {
  return to_floats(load_pack<N>(from));
}
template <int N, class T>
__device__ __forceinline__ void store_floats(T* to, const Floats<N>& floats) {
  store_pack<N>(to, rounded<T>(floats));
}

}  // namespace lockstep::cuda
