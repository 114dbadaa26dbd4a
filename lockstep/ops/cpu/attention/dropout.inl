// Which probabilities dropout keeps (base/math/counter_rng.h), for a vector of queries at a time.
// Part of attention's kernels.
#pragma once

#include "lockstep/ops/cpu/attention/tile.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// The upper half of the products.
inline Words multiply_high(Words a, std::uint32_t b) {
#if defined(__ARM_NEON)
  const uint32x2_t factor = vdup_n_u32(b);
  const uint64x2_t low = vmull_u32(vget_low_u32((uint32x4_t)a), factor);
  const uint64x2_t high = vmull_u32(vget_high_u32((uint32x4_t)a), factor);
  return (Words)vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
#else
  const Longs even = ((Longs)a & 0xffffffff) * b;
  const Longs odd = ((Longs)a >> 32) * b;
  return (Words)((even >> 32) | (odd >> 32 << 32));
#endif
}

// philox() of base/math/counter_rng.h, lane by lane.
inline void random_words(const AttentionDropout& dropout, Words block_low, Words block_high,
                         Words (&words)[4]) {
  auto key_low = static_cast<std::uint32_t>(dropout.seed);
  auto key_high = static_cast<std::uint32_t>(dropout.seed >> 32);
  Words x0 = block_low, x1 = block_high;
  Words x2 = Words{} + static_cast<std::uint32_t>(dropout.step);
  Words x3 = Words{} + static_cast<std::uint32_t>(dropout.step >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words even_high = multiply_high(x0, 0xd2511f53u), even_low = x0 * 0xd2511f53u;
    const Words odd_high = multiply_high(x2, 0xcd9e8d57u), odd_low = x2 * 0xcd9e8d57u;
    x0 = odd_high ^ x1 ^ key_low;
    x1 = odd_low;
    x2 = even_high ^ x3 ^ key_high;
    x3 = even_low;
    key_low += 0x9e3779b9u;
    key_high += 0xbb67ae85u;
  }
  words[0] = x0;
  words[1] = x1;
  words[2] = x2;
  words[3] = x3;
}

// kept[key][query] = 0 or the dropout's factor. Where the number of keys is a multiple of 4, four
// keys from a multiple of 4 on share their random numbers; otherwise where those begin differs from
// query to query, and each key asks again.
void fill_kept(const AttentionCall& call, const QueryStrip& strip, const Meeting& at,
               const Matrix& kept) {
  const bool aligned = call.keys % 4 == 0;
  const Floats factor = splat(call.dropout.factor);
  const std::uint64_t first_row = (strip.sequence * call.heads + strip.head) * call.queries;
  for (std::size_t i = 0; i < padded(at.tile.count); i += kLanes) {
    std::uint64_t start[kLanes];  // position of each query's first key of the block
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      start[lane] =
          call.dropout.first + (first_row + at.tile.first + i + lane) * call.keys + at.block.first;
    }
    for (std::size_t j = 0; j < at.block.count; j += aligned ? 4 : 1) {
      std::uint32_t low[kLanes], high[kLanes], place[kLanes];
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::uint64_t position = start[lane] + j;
        low[lane] = static_cast<std::uint32_t>(position / 4);
        high[lane] = static_cast<std::uint32_t>(position / 4 >> 32);
        place[lane] = static_cast<std::uint32_t>(position % 4);
      }
      Words low_words, high_words, places, words[4];
      std::memcpy(&low_words, low, sizeof(low));
      std::memcpy(&high_words, high, sizeof(high));
      std::memcpy(&places, place, sizeof(place));
      random_words(call.dropout, low_words, high_words, words);
      if (aligned) {
        for (std::size_t w = 0; w < 4; ++w) {
          store(kept.row(j + w) + i, words[w] < call.dropout.limit ? factor : Floats{});
        }
      } else {
        const Words low_pair = places == 0 ? words[0] : words[1];
        const Words high_pair = places == 2 ? words[2] : words[3];
        const Words word = places < 2 ? low_pair : high_pair;
        store(kept.row(j) + i, word < call.dropout.limit ? factor : Floats{});
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
