// Counter-based random numbers: a number is a pure function of a seed and a position.
//
// So every worker can make the numbers of its own shard, in any order and on any number of threads.
// A recomputed block gets the same dropout mask, and a resumed run continues as if it had never
// stopped. Only the seed has to be saved.
//
// The function is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
// as 1, 2, 3" (2011): ten rounds of multiplications that turn a counter of 128 bits into 128 random
// bits under a key, the seed. Here a counter is (step, block), and the block at `block` holds the
// elements at positions 4 * block to 4 * block + 3. Different purposes (weights, each dropout) take
// different seeds.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace lockstep {

// Four words of 32 bits, least significant first.
using RandomWords = std::array<std::uint32_t, 4>;

constexpr RandomWords philox(std::uint64_t key, RandomWords counter) {
  auto key_low = static_cast<std::uint32_t>(key);
  auto key_high = static_cast<std::uint32_t>(key >> 32);
  auto [w0, w1, w2, w3] = counter;  // by name: an array's operator[] is a call without optimisation
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xd2511f53u} * w0;
    const std::uint64_t odd = std::uint64_t{0xcd9e8d57u} * w2;
    w0 = static_cast<std::uint32_t>(odd >> 32) ^ w1 ^ key_low;
    w1 = static_cast<std::uint32_t>(odd);
    w2 = static_cast<std::uint32_t>(even >> 32) ^ w3 ^ key_high;
    w3 = static_cast<std::uint32_t>(even);
    key_low += 0x9e3779b9u;   // the golden ratio
    key_high += 0xbb67ae85u;  // the square root of 3, minus 1
  }
  return {w0, w1, w2, w3};
}

// The words of positions 4 * block to 4 * block + 3.
constexpr RandomWords random_block(std::uint64_t seed, std::uint64_t step, std::uint64_t block) {
  return philox(seed, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                       static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)});
}

constexpr std::uint32_t random_word(std::uint64_t seed, std::uint64_t step,
                                    std::uint64_t position) {
  return random_block(seed, step, position / 4)[position % 4];
}

// A multiple of 2^-24 in [0, 1), which a float holds exactly.
constexpr float to_uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Two independent numbers of mean 0 and variance 1, at most 5.77 from 0, by Box and Muller. They
// are worked out in double and rounded once, so that mathematical libraries that differ in a last
// bit still give the same float.
inline std::array<float, 2> to_normals(std::uint32_t first, std::uint32_t second) {
  const double above_zero = 1.0 - static_cast<double>(to_uniform(first));  // its logarithm exists
  const double radius = std::sqrt(-2.0 * std::log(above_zero));
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(to_uniform(second));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

constexpr float uniform_at(std::uint64_t seed, std::uint64_t step, std::uint64_t position) {
  return to_uniform(random_word(seed, step, position));
}

inline std::array<float, 4> normal_block(std::uint64_t seed, std::uint64_t step,
                                         std::uint64_t block) {
  const RandomWords words = random_block(seed, step, block);
  const auto low = to_normals(words[0], words[1]);
  const auto high = to_normals(words[2], words[3]);
  return {low[0], low[1], high[0], high[1]};
}

inline float normal_at(std::uint64_t seed, std::uint64_t step, std::uint64_t position) {
  return normal_block(seed, step, position / 4)[position % 4];
}

// A dropout mask keeps an element if its random word is below keep_limit(probability). A
// probability of 0 or less keeps none, of 1 or more all; others are exact to 2^-32.
constexpr std::uint64_t keep_limit(double probability) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  if (!(probability > 0)) return 0;
  if (probability >= 1) return kAll;
  return static_cast<std::uint64_t>(probability * static_cast<double>(kAll));
}

constexpr bool keeps(std::uint32_t word, std::uint64_t limit) { return word < limit; }

constexpr bool is_kept(std::uint64_t seed, std::uint64_t step, std::uint64_t position,
                       double probability) {
  return keeps(random_word(seed, step, position), keep_limit(probability));
}

}  // namespace lockstep
