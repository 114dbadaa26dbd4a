// How elements lie in memory and in which form they are combined. Part of kernels.inl.
//
// A format has: Lane, the number that is combined; Stored, what a vector of memory is made of;
// load(), which widens one vector of memory into a Pack; narrow(), which rounds a Pack into one;
// kKeepsVectorUnitsBusy, whether that takes more of a CPU's vector units than its memory leaves
// idle; perhaps add(), which adds a vector of memory to a Pack faster than load() and a sum do, and
// widen(), which is load() of a vector that is loaded already.
#pragma once

#include "lockstep/comm/reduce/operations.inl"

namespace lockstep::reduce::LOCKSTEP_ISA {
namespace {

template <class T>
struct Native {
  using Lane = T;
  using Stored = T;
  static constexpr std::size_t kSize = sizeof(T);
  static constexpr int kVectors = 1;
  static constexpr bool kKeepsVectorUnitsBusy = false;
  struct Pack {
    Vector<T> part[kVectors];
  };
  static Pack load(const std::byte* from) { return {{load_vector<T>(from)}}; }
  template <Nans kNans>
  static Vector<T> narrow(const Pack& pack) {
    return canonical<kNans, T>(pack.part[0]);
  }
};

struct Bf16Format {
  using Lane = float;
#if defined(__aarch64__)
  using Stored = std::uint16_t;
#else
  using Stored = std::uint32_t;
#endif
  static constexpr std::size_t kSize = 2;
  static constexpr int kVectors = 2;
#if defined(__aarch64__)
  // Both of a Neoverse N1, which has no arithmetic of this type: 11 operations a vector. Of a V1,
  // the one that rounds to it.
  static constexpr bool kKeepsVectorUnitsBusy = true;
#else
  static constexpr bool kKeepsVectorUnitsBusy = false;
#endif
  struct Pack {
    Vector<float> part[kVectors];
  };
#if defined(__aarch64__)
  static Pack load(const std::byte* from) {
    Pack pack;
    load_two(reinterpret_cast<const BFloat16*>(from), pack.part);
    return pack;
  }
  template <Nans kNans>
  static Vector<std::uint16_t> narrow(const Pack& pack) {
    const Words low = (Words)canonical<kNans, float>(pack.part[0]);
    const Words high = (Words)canonical<kNans, float>(pack.part[1]);
    const auto negative = vrsubhn_high_u32(vrsubhn_u32(odd(low), low), odd(high), high);
    return Vector<std::uint16_t>{} - (Vector<std::uint16_t>)negative;
  }
  // Of the 16 bits that go, half a unit and more round up where the rest is odd, and more than half
  // where it is even. The instruction that narrows a difference adds half a unit first, so of
  // -odd - x it gives minus the rounded x: one operation less than to build what x + ... would
  // need.
  static Words odd(Words x) { return vtstq_u32(x, Words{} + 0x10000); }
#else
  // Even elements in one vector, odd ones in the other: no shuffles either way.
  static Pack load(const std::byte* from) {
    const Words x = load_vector<std::uint32_t>(from);
    return {{(Vector<float>)(x << 16), (Vector<float>)(x & 0xffff0000u)}};
  }
  template <Nans kNans>
  static Words narrow(const Pack& pack) {
    const Words even = rounded((Words)canonical<kNans, float>(pack.part[0])) >> 16;
    const Words odd = rounded((Words)canonical<kNans, float>(pack.part[1]));
#if LOCKSTEP_VECTOR_BYTES == 64
    return (Words)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)even, (__m512i)odd);
#else
    return (Words)_mm256_blend_epi16((__m256i)even, (__m256i)odd, 0xaa);
#endif
  }
  static Words rounded(Words x) {
#if LOCKSTEP_VECTOR_BYTES == 64
    const __mmask16 is_odd = _mm512_test_epi32_mask((__m512i)x, (__m512i)(Words{} + 0x10000));
    const auto half_down = (__m512i)(x + 0x7fff);
    return (Words)_mm512_mask_add_epi32(half_down, is_odd, half_down, (__m512i)(Words{} + 1));
#else
    return x + 0x7fff + ((x >> 16) & 1);
#endif
  }
#endif
};

struct F16Format {
  using Lane = float;
  using Stored = std::uint16_t;
  static constexpr std::size_t kSize = 2;
  static constexpr int kVectors = 2;
  static constexpr bool kKeepsVectorUnitsBusy = false;  // but the one that converts
  struct Pack {
    Vector<float> part[kVectors];
  };
#if LOCKSTEP_VECTOR_BYTES == 64
  // GCC 12 takes the unmasked intrinsics for reads of uninitialised memory.
  static constexpr __mmask16 kAllLanes = 0xffff;
#endif
  static Pack load(const std::byte* from) {
#if defined(__aarch64__)
    const auto x = (float16x8_t)load_vector<std::uint16_t>(from);
    return {{vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)}};
#else
    Pack pack;
    load_two(reinterpret_cast<const Half*>(from), pack.part);
    return pack;
#endif
  }
  template <Nans kNans>
  static Vector<std::uint16_t> narrow(const Pack& pack) {
    const Vector<float> low = canonical<kNans, float>(pack.part[0]);
    const Vector<float> high = canonical<kNans, float>(pack.part[1]);
#if defined(__aarch64__)
    return (Vector<std::uint16_t>)vcvt_high_f16_f32(vcvt_f16_f32(low), high);
#elif LOCKSTEP_VECTOR_BYTES == 64
    const __m256i halves[] = {_mm512_maskz_cvtps_ph(kAllLanes, low, _MM_FROUND_TO_NEAREST_INT),
                              _mm512_maskz_cvtps_ph(kAllLanes, high, _MM_FROUND_TO_NEAREST_INT)};
    return load_vector<std::uint16_t>(reinterpret_cast<const std::byte*>(halves));
#else
    return (Vector<std::uint16_t>)_mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                                                   _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
#endif
  }
};

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__ARM_FEATURE_FP16_FML)
// The same with instructions that add products of 16-bit floats to 32-bit ones and round once: a
// product with one adds an operand that need not be widened first.
struct Bf16Products : Bf16Format {
  // Even elements in one vector, odd ones in the other, as the products take them.
  static Pack load(const std::byte* from) { return widen(load_vector<std::uint16_t>(from)); }
  static Pack widen(Vector<std::uint16_t> x) {
    return {{(Vector<float>)((Words)x << 16), (Vector<float>)((Words)x & 0xffff0000u)}};
  }
  static void add(Pack& pack, Vector<std::uint16_t> x) {
    const auto one = Vector<std::uint16_t>{} + 0x3f80;
    // By hand: GCC 12 takes constants of bf16 for such of f16.
    asm("bfmlalb %0.4s, %1.8h, %2.8h" : "+w"(pack.part[0]) : "w"(x), "w"(one));
    asm("bfmlalt %0.4s, %1.8h, %2.8h" : "+w"(pack.part[1]) : "w"(x), "w"(one));
  }
  template <Nans kNans>
  static Vector<std::uint16_t> narrow(const Pack& pack) {
    return vzip1q_u16(rounded(canonical<kNans, float>(pack.part[0])),
                      rounded(canonical<kNans, float>(pack.part[1])));
  }
  static Vector<std::uint16_t> rounded(Vector<float> x) {
    return vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(x));
  }
};

struct F16Products : F16Format {
  // Half the time of instructions that widen. To negative zero, which changes no other zero.
  static Pack widen(Vector<std::uint16_t> x) {
    Pack pack = {{-Vector<float>{}, -Vector<float>{}}};
    add(pack, x);
    return pack;
  }
  static Pack load(const std::byte* from) { return widen(load_vector<std::uint16_t>(from)); }
  static void add(Pack& pack, Vector<std::uint16_t> x) {
    const auto one = (float16x8_t)(Vector<std::uint16_t>{} + 0x3c00);
    pack.part[0] = vfmlalq_low_f16(pack.part[0], (float16x8_t)x, one);
    pack.part[1] = vfmlalq_high_f16(pack.part[1], (float16x8_t)x, one);
  }
};

using Bf16 = Bf16Products;
using F16 = F16Products;
#else
using Bf16 = Bf16Format;
using F16 = F16Format;
#endif

}  // namespace
}  // namespace lockstep::reduce::LOCKSTEP_ISA
