// Gradients to compress, and what tests of compression ask about them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/parallel/compression/codec.h"

namespace lockstep::parallel::testing {

// Blocks, segments, and one more or less.
inline constexpr std::size_t kOddSizes[] = {0,   1,   3,   17,    127,   128,  129,
                                            255, 256, 257, 65535, 65536, 65537};

// Normal, of a size that changes from place to place, like the gradients of layers.
inline std::vector<float> make_gradients(std::size_t elements, std::uint64_t seed) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const float size = 1e-3f * static_cast<float>(1 + i / 1000 % 7);
    values[i] = size * normal_at(seed, 0, i);
  }
  return values;
}

inline float largest_magnitude_of(std::span<const float> values) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::fabs(x));
  return largest;
}

inline bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

inline bool are_all(std::span<const float> values, float value) {
  return std::all_of(values.begin(), values.end(), [value](float x) { return x == value; });
}

// The payload of values + residual, in memory of the exact sizes.
inline std::vector<std::byte> encoded(const Codec& codec, std::span<const float> values,
                                      std::span<float> residual, std::uint64_t seed) {
  std::vector<std::byte> payload(codec.bytes(values.size()));
  std::vector<std::byte> scratch(codec.scratch_bytes(values.size()));
  codec.encode(values, residual, payload, scratch, seed);
  return payload;
}

inline std::vector<float> decoded(const Codec& codec, std::span<const std::byte> payload,
                                  std::size_t elements, std::uint64_t seed) {
  std::vector<float> out(elements, 99.0f);
  codec.decode(payload, out, seed);
  return out;
}

}  // namespace lockstep::parallel::testing
