// Dropout of runs of elements (base/math/counter_rng.h). Part of a file of kernels (vector.inl).
#pragma once

#include "lockstep/base/simd/vector.inl"
#include "lockstep/ops/cpu/elementwise/dropout.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

// The products of 32 bits by 32, of the even lanes and of the odd ones.
struct Products {
  Longs even;
  Longs odd;
};
inline Products multiply_wide(Words x, std::uint32_t factor) {
#if LOCKSTEP_VECTOR_BYTES == 64
  const __m512i f = _mm512_set1_epi32(static_cast<int>(factor));
  const auto odd = (__m512i)((Longs)x >> 32);
  return {(Longs)_mm512_maskz_mul_epu32(0xff, (__m512i)x, f),
          (Longs)_mm512_maskz_mul_epu32(0xff, odd, f)};
#elif LOCKSTEP_VECTOR_BYTES == 32
  const __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  const auto odd = (__m256i)((Longs)x >> 32);
  return {(Longs)_mm256_mul_epu32((__m256i)x, f), (Longs)_mm256_mul_epu32(odd, f)};
#else
  return {((Longs)x & 0xffffffffu) * factor, ((Longs)x >> 32) * factor};
#endif
}

// Both halves of the products of 32 bits by 32.
struct Halves {
  Words high;
  Words low;
};
inline Halves multiply(Words x, std::uint32_t factor) {
#if defined(__ARM_NEON)
  const uint32x2_t f = vdup_n_u32(factor);
  const auto first = (uint32x4_t)vmull_u32(vget_low_u32(x), f);
  const auto second = (uint32x4_t)vmull_u32(vget_high_u32(x), f);
  return {vuzp2q_u32(first, second), vuzp1q_u32(first, second)};
#else
  const Products p = multiply_wide(x, factor);
  constexpr std::uint64_t kLow = 0xffffffffu;
  return {(Words)((p.even >> 32) | (p.odd & ~kLow)), (Words)((p.even & kLow) | (p.odd << 32))};
#endif
}

// a and b lane by lane in turn: the first halves of both, or the second ones.
inline Words interleave_first(Words a, Words b) {
  Words order;
  for (std::uint32_t i = 0; i < kLanes; ++i) order[i] = i / 2 + (i % 2) * kLanes;
  return __builtin_shuffle(a, b, order);
}
inline Words interleave_second(Words a, Words b) {
  Words order;
  for (std::uint32_t i = 0; i < kLanes; ++i) order[i] = (kLanes + i) / 2 + (i % 2) * kLanes;
  return __builtin_shuffle(a, b, order);
}

// Philox4x32-10 of kLanes counters at once, (block, step) for consecutive blocks, put into the
// order of the elements: 4 kLanes words.
inline void random_words(const DropoutKey& key, std::uint64_t block, Words (&words)[4]) {
  const auto block_low = static_cast<std::uint32_t>(block);
  Words x0;
  for (std::uint32_t i = 0; i < kLanes; ++i) x0[i] = i;
  x0 += block_low;
  // A lane that went over the end of 32 bits carries: its mask of -1 is subtracted.
  Words x1 = static_cast<std::uint32_t>(block >> 32) - (Words)(x0 < block_low);
  Words x2 = Words{} + static_cast<std::uint32_t>(key.step);
  Words x3 = Words{} + static_cast<std::uint32_t>(key.step >> 32);
  auto low = static_cast<std::uint32_t>(key.seed);
  auto high = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Halves even = multiply(x0, 0xd2511f53u);
    const Halves odd = multiply(x2, 0xcd9e8d57u);
    x0 = odd.high ^ x1 ^ low;
    x1 = odd.low;
    x2 = even.high ^ x3 ^ high;
    x3 = even.low;
    low += 0x9e3779b9u;
    high += 0xbb67ae85u;
  }
  const Words a = interleave_first(x0, x2), b = interleave_first(x1, x3);
  const Words c = interleave_second(x0, x2), d = interleave_second(x1, x3);
  words[0] = interleave_first(a, b);
  words[1] = interleave_second(a, b);
  words[2] = interleave_first(c, d);
  words[3] = interleave_second(c, d);
}

// What the elements of a run are multiplied by, made in pieces that stay in the first-level cache.
class DropoutFactors {
 public:
  explicit DropoutFactors(const DropoutKey& key) : key_(key) {}

  // f(done, count, factors) for the pieces of `count` elements from `position` on: `done` elements
  // lie before a piece, and `factors` are its `count` ones.
  template <class F>
  void for_pieces(std::uint64_t position, std::size_t count, F&& f) {
    for (std::size_t done = 0; done < count; done += kPiece) {
      const std::size_t here = count - done < kPiece ? count - done : kPiece;
      f(done, here, of(position + done, here));
    }
  }

 private:
  const float* of(std::uint64_t position, std::size_t count) {
    const DropoutKey key = key_;  // which the stores below might change, for all a compiler knows
    const std::size_t ahead = position % 4;
    std::uint64_t block = position / 4;
    for (std::size_t i = 0; i < ahead + count; i += 4 * kLanes, block += kLanes) {
      Words words[4];
      random_words(key, block, words);
      for (std::size_t j = 0; j < 4; ++j) {
        store(factors_ + i + j * kLanes, words[j] <= key.last_kept ? splat(key.factor) : splat(0));
      }
    }
    return factors_ + ahead;
  }

  static constexpr std::size_t kPiece = 256;

  DropoutKey key_;
  alignas(64) float factors_[kPiece + 4 * kLanes];
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
