// Vectors of the instruction set that the including file is compiled for, and how 16-bit floats
// become vectors of float. All kernels are written over them (kernel_table.h says how).
//
// A Vector<T> is what one register holds: LOCKSTEP_VECTOR_BYTES bytes. GCC's vector arithmetic
// applies: + - * /, comparisons that give a mask of -1 and 0 (Ints for Floats), `mask ? a : b`.
// Where the file's options allow it (cmake/Kernels.cmake), a product and a sum are fused.
//
// Everything here has internal linkage, and nothing is computed by functions of the standard
// library: a shared inline function compiled here could be the copy that the linker keeps for a CPU
// that lacks these instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/base/math/half.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#define LOCKSTEP_VECTOR_BYTES 16
#elif defined(__AVX512F__)
#include <immintrin.h>
#define LOCKSTEP_VECTOR_BYTES 64
#elif defined(__AVX2__)
#include <immintrin.h>
#define LOCKSTEP_VECTOR_BYTES 32
#else
#define LOCKSTEP_VECTOR_BYTES 16
#endif

namespace lockstep::simd {
namespace {

constexpr std::size_t kVectorBytes = LOCKSTEP_VECTOR_BYTES;
constexpr std::size_t kLanes = kVectorBytes / sizeof(float);

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T in_memory __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
};
template <class T>
using Vector = typename VectorOf<T>::type;

using Floats = Vector<float>;
using Doubles = Vector<double>;
using Ints = Vector<std::int32_t>;
using Words = Vector<std::uint32_t>;
using Longs = Vector<std::uint64_t>;
typedef float FloatsInMemory __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
// kLanes elements of 16 bits: half a register.
typedef std::uint16_t Shorts __attribute__((vector_size(kVectorBytes / 2)));
typedef std::uint16_t ShortsInMemory
    __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));

// A whole vector, at any address.
template <class T>
Vector<T> load_vector(const std::byte* from) {
  return *reinterpret_cast<const typename VectorOf<T>::in_memory*>(from);
}

// Stores past the cache where `kStream` (the address is then a multiple of kVectorBytes).
template <bool kStream, class T>
void store_vector(std::byte* to, Vector<T> x) {
#if LOCKSTEP_VECTOR_BYTES == 64
  if constexpr (kStream) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)x);
#elif LOCKSTEP_VECTOR_BYTES == 32
  if constexpr (kStream) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)x);
#endif
  *reinterpret_cast<typename VectorOf<T>::in_memory*>(to) = x;
}

// A difference, for x + 0 is not x where x is -0, and would be computed.
inline Floats splat(float x) { return x - Floats{}; }

inline Floats load(const float* from) { return *reinterpret_cast<const FloatsInMemory*>(from); }
inline void store(float* to, Floats x) { *reinterpret_cast<FloatsInMemory*>(to) = x; }

// 16 bits to the upper half of 32, and back; GCC 12 would convert lane by lane, or half by half.
inline Words to_upper_half(Shorts x) {
#if defined(__ARM_NEON)
  return vshll_n_u16(x, 16);
#elif LOCKSTEP_VECTOR_BYTES == 64
  return (Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)x) << 16;
#elif LOCKSTEP_VECTOR_BYTES == 32
  return (Words)_mm256_cvtepu16_epi32((__m128i)x) << 16;
#else
  return __builtin_convertvector(x, Words) << 16;
#endif
}
inline Shorts upper_half(Words x) {
#if defined(__ARM_NEON)
  return vshrn_n_u32(x, 16);
#elif LOCKSTEP_VECTOR_BYTES == 64
  return (Shorts)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)(x >> 16));
#else
  return __builtin_convertvector(x >> 16, Shorts);
#endif
}

inline Floats load(const BFloat16* from) {
  return (Floats)to_upper_half(*reinterpret_cast<const ShortsInMemory*>(from));
}

// The nearest bf16, or the even one of two, in the upper half; a NaN stays one. What is in the
// lower half is nothing.
inline Words rounded_to_bfloat16(Floats x) {
  const Words bits = (Words)x;
  const Words rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return x == x ? rounded : bits | 0x400000;
}
inline void store(BFloat16* to, Floats x) {
  *reinterpret_cast<ShortsInMemory*>(to) = upper_half(rounded_to_bfloat16(x));
}

#if defined(__ARM_NEON)
inline Floats load(const Half* from) {
  return vcvt_f32_f16((float16x4_t) * reinterpret_cast<const ShortsInMemory*>(from));
}
inline void store(Half* to, Floats x) {
  *reinterpret_cast<ShortsInMemory*>(to) = (Shorts)vcvt_f16_f32(x);
}
#elif LOCKSTEP_VECTOR_BYTES == 64
// GCC 12 takes the unmasked intrinsics for reads of uninitialised memory.
inline Floats load(const Half* from) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline void store(Half* to, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT));
}
#elif LOCKSTEP_VECTOR_BYTES == 32
inline Floats load(const Half* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline void store(Half* to, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
#else
inline Floats load(const Half* from) {
  Floats x;
  for (std::size_t i = 0; i < kLanes; ++i) x[i] = to_float(from[i]);
  return x;
}
inline void store(Half* to, Floats x) {
  for (std::size_t i = 0; i < kLanes; ++i) to[i] = to_half(x[i]);
}
#endif

// Two vectors that follow one another.
template <class T>
inline void load_two(const T* from, Floats (&x)[2]) {
  x[0] = load(from);
  x[1] = load(from + kLanes);
}
#if defined(__ARM_NEON)
// One load of 16 bytes, and instructions that either pipe takes.
inline void load_two(const BFloat16* from, Floats (&x)[2]) {
  const uint16x8_t both = vld1q_u16(reinterpret_cast<const std::uint16_t*>(from));
  x[0] = (Floats)vzip1q_u16(uint16x8_t{}, both);
  x[1] = (Floats)vzip2q_u16(uint16x8_t{}, both);
}
#endif

// The last elements of a row, fewer than a vector; lanes behind them are zero.
template <class T>
Floats load_part(const T* from, std::size_t count) {
  T lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return load(lanes);
}
template <class T>
void store_part(T* to, Floats x, std::size_t count) {
  T lanes[kLanes];
  store(lanes, x);
  std::memcpy(to, lanes, count * sizeof(T));
}

#if LOCKSTEP_VECTOR_BYTES == 64
inline __mmask16 first_of_mask(std::size_t count) {
  return static_cast<__mmask16>((1u << count) - 1);
}
inline Floats load_part(const float* from, std::size_t count) {
  return _mm512_maskz_loadu_ps(first_of_mask(count), from);
}
inline void store_part(float* to, Floats x, std::size_t count) {
  _mm512_mask_storeu_ps(to, first_of_mask(count), x);
}
#endif

// f(index, part) for every vector of `count` elements: `part` lanes of it count.
template <class F>
void for_vectors(std::size_t count, F&& f) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, std::integral_constant<std::size_t, kLanes>{});
  if (i < count) f(i, count - i);
}
template <class T>
Floats load_some(const T* from, std::size_t part) {
  return part == kLanes ? load(from) : load_part(from, part);
}
template <class T>
void store_some(T* to, Floats x, std::size_t part) {
  if (part == kLanes) return store(to, x);
  store_part(to, x, part);
}

// The same for work that takes long from its first instruction to its last, or reads and writes
// much: two vectors at a time are read, worked on and written, so that neither waits for the other.
// read(index, part) gives a struct of vectors, work(it) changes it, write(index, part, it) stores.
template <class Read, class Work, class Write>
void for_vectors_by_two(std::size_t count, Read&& read, Work&& work, Write&& write) {
  constexpr std::integral_constant<std::size_t, kLanes> kWhole;
  std::size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    auto first = read(i, kWhole);
    auto second = read(i + kLanes, kWhole);
    work(first);
    work(second);
    write(i, kWhole, first);
    write(i + kLanes, kWhole, second);
  }
  for_vectors(count - i, [&](std::size_t k, auto part) {
    auto rest = read(i + k, part);
    work(rest);
    write(i + k, part, rest);
  });
}

// NaN where b is.
#if defined(__ARM_NEON)
inline Floats min(Floats a, Floats b) { return vminq_f32(a, b); }
inline Floats max(Floats a, Floats b) { return vmaxq_f32(a, b); }
#else
inline Floats min(Floats a, Floats b) { return a < b ? a : b; }
inline Floats max(Floats a, Floats b) { return a > b ? a : b; }
#endif

// a b + c, fused where the instruction set can. The compiler fuses by itself too; this is for where
// it could choose between two products, and all of its choices must be the same.
#if defined(__ARM_NEON)
inline Floats fused(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
#elif LOCKSTEP_VECTOR_BYTES == 64
inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
#elif LOCKSTEP_VECTOR_BYTES == 32
inline Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
#else
inline Floats fused(Floats a, Floats b, Floats c) { return a * b + c; }
#endif

#if defined(__AVX2__)
// Whether a lane of a or b is NaN.
inline bool has_nan(Floats a, Floats b) {
#if LOCKSTEP_VECTOR_BYTES == 64
  return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0;
#else
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
#endif
}
inline bool has_nan(Doubles a, Doubles b) {
#if LOCKSTEP_VECTOR_BYTES == 64
  return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q) != 0;
#else
  return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_UNORD_Q)) != 0;
#endif
}
#endif

inline Floats square_root(Floats x) {
#if defined(__ARM_NEON)
  return vsqrtq_f32(x);
#elif LOCKSTEP_VECTOR_BYTES == 64
  return _mm512_maskz_sqrt_ps(0xffff, x);
#elif LOCKSTEP_VECTOR_BYTES == 32
  return _mm256_sqrt_ps(x);
#else
  for (std::size_t i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// x with zero in the lanes from `count` on.
inline Floats first_lanes(Floats x, std::size_t count) {
  Ints lane;
  for (std::size_t i = 0; i < kLanes; ++i) lane[i] = static_cast<std::int32_t>(i);
  return lane < static_cast<std::int32_t>(count) ? x : splat(0);
}

// In one fixed order: halves are added until one lane is left.
inline float sum_of_lanes(Floats x) {
  float lanes[kLanes];
  store(lanes, x);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
inline float max_of_lanes(Floats x) {
  float lanes[kLanes];
  store(lanes, x);
  float most = lanes[0];
  for (std::size_t i = 1; i < kLanes; ++i) most = lanes[i] > most ? lanes[i] : most;
  return most;
}

}  // namespace
}  // namespace lockstep::simd
