// Vectors of the instruction set that the file is compiled for. Part of kernels.inl.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__aarch64__)
#include <arm_neon.h>
#define LOCKSTEP_VECTOR_BYTES 16
#elif defined(__AVX512F__)
#include <immintrin.h>
#define LOCKSTEP_VECTOR_BYTES 64
#else
#include <immintrin.h>
#define LOCKSTEP_VECTOR_BYTES 32
#endif

namespace lockstep::reduce::LOCKSTEP_ISA {
namespace {

constexpr std::size_t kWidth = LOCKSTEP_VECTOR_BYTES;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kWidth)));
  typedef T in_memory __attribute__((vector_size(kWidth), aligned(1), may_alias));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <std::size_t kBytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};
template <class T>
using Unsigned = Vector<typename UnsignedOf<sizeof(T)>::type>;

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

template <class T>
Vector<T> load_vector(const std::byte* from) {
  return *reinterpret_cast<const typename VectorOf<T>::in_memory*>(from);
}

// Stores past the cache where `kStream` (the address is then a multiple of kWidth).
template <bool kStream, class T>
void store_vector(std::byte* to, Vector<T> x) {
  if constexpr (kStream) {
#if LOCKSTEP_VECTOR_BYTES == 64
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)x);
#elif LOCKSTEP_VECTOR_BYTES == 32
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)x);
#endif
  } else {
    *reinterpret_cast<typename VectorOf<T>::in_memory*>(to) = x;
  }
}

}  // namespace
}  // namespace lockstep::reduce::LOCKSTEP_ISA
