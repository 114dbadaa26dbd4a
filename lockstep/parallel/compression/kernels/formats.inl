// How a block of kBlock floats lies in a payload. Part of kernels.inl.
//
// A format has encode(x, count, payload), which leaves in x what the payload does not say, and
// decode(payload, x). Both work on whole blocks: elements of x from `count` on are zeros, and what
// they become in payload and x is cut off by the caller. Numbers are little-endian and lie at any
// address.
//
//   bf16     kBlock x 16 bits
//   f16      8 bits e | kBlock x 16 bits     value = f16 * 2^(e - 141), all below 2^15 in f16
//   int8     f32 s | kBlock x 8 bits         value = s * integer in [-127, 127]
//   int4     f32 s | kBlock / 2 bytes        value = s * integer in [-7, 7]; element i is the low
//   half
//                                            of byte i, element i + kBlock / 2 the high one
//   onebit   bf16 p | bf16 n | 16 bytes      value = bit ? n : p; element i is bit i / 16 of byte
//                                            i % 16, so that 16 elements go side by side
//
// A block with infinity or NaN in it decodes to one with infinity or NaN in it.
#pragma once

#include "lockstep/base/simd/lanes.inl"
#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel::LOCKSTEP_ISA {
namespace {

using namespace simd;

Magnitude largest_magnitude(const float* x) {
  Magnitude largest = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const Magnitude here = magnitude_of(x[i]);
    largest = here > largest ? here : largest;
  }
  return largest;
}

struct Bf16 {
  static constexpr std::size_t bytes(std::size_t count) { return bf16_block_bytes(count); }

  static void encode(float* x, std::size_t, std::byte* payload) {
    Stored16* words = reinterpret_cast<Stored16*>(payload);
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::uint16_t word = bf16_of(x[i]);
      words[i] = word;
      x[i] -= float_of_bf16(word);
    }
  }
  static void decode(const std::byte* payload, float* x) {
    const Stored16* words = reinterpret_cast<const Stored16*>(payload);
    for (std::size_t i = 0; i < kBlock; ++i) x[i] = float_of_bf16(words[i]);
  }
};

struct F16 {
  static constexpr std::size_t bytes(std::size_t count) { return f16_block_bytes(count); }

  // 2^(e - 127) of the bits of an exponent.
  static float power_of_two(std::uint32_t exponent) { return float_of_bits(exponent << 23); }
  static constexpr std::uint32_t kExponentOfLargest = 141;  // of 2^14: scaled values are below 2^15

  static void encode(float* x, std::size_t, std::byte* payload) {
    std::uint32_t exponent = static_cast<std::uint32_t>(largest_magnitude(x)) >> 23;
    if (exponent < kLeastF16Exponent) exponent = kLeastF16Exponent;
    if (exponent > kMostF16Exponent) exponent = kMostF16Exponent;
    *payload = static_cast<std::byte>(exponent);
    const float up = power_of_two(127 + kExponentOfLargest - exponent);
    const float down = power_of_two(127 - kExponentOfLargest + exponent);
    Stored16* words = reinterpret_cast<Stored16*>(payload + 1);
    to_halves<kBlock>(x, up, words);
    for (std::size_t i = 0; i < kBlock; ++i) x[i] -= float_of_half(words[i]) * down;
  }
  static void decode(const std::byte* payload, float* x) {
    const auto exponent = static_cast<std::uint32_t>(*payload);
    const float down = power_of_two(127 - kExponentOfLargest + exponent);
    const Stored16* words = reinterpret_cast<const Stored16*>(payload + 1);
    for (std::size_t i = 0; i < kBlock; ++i) x[i] = float_of_half(words[i]) * down;
  }
};

// What int8 and int4 have in common: even steps to the largest magnitude of the block.
struct Steps {
  float scale = 0;
  float inverse = 0;

  // Its unit is 1: adding it rounds to the nearest integer, which is then in the lowest bits.
  static constexpr float kRounder = 0x1.8p23f;
  // Below it most / largest would be infinite; so small a block is sent as zeros.
  static constexpr float kLeastMagnitude = 0x1p-119f;

  // With infinity or NaN in it x becomes zeros, of a scale that is NaN.
  Steps(float* x, float most) {
    const Magnitude magnitude = largest_magnitude(x);
    const float largest = float_of_bits(static_cast<std::uint32_t>(magnitude));
    if (magnitude >= kInfiniteMagnitude) {
      scale = float_of_bits(kNanBits);
      for (std::size_t i = 0; i < kBlock; ++i) x[i] = 0;
    } else if (largest >= kLeastMagnitude) {
      scale = largest / most;
      inverse = most / largest;
    }
  }
  // The integer nearest to x, which becomes what that does not say.
  std::uint32_t take(float& x) const {
    const float shifted = x * inverse + kRounder;
    x -= (shifted - kRounder) * scale;
    return bits_of(shifted);
  }
};

struct Int8 {
  static constexpr std::size_t bytes(std::size_t count) { return int8_block_bytes(count); }
  static constexpr float kMost = 127;

  static void encode(float* x, std::size_t, std::byte* payload) {
    const Steps steps(x, kMost);
    *reinterpret_cast<StoredFloat*>(payload) = steps.scale;
    auto* integers = reinterpret_cast<std::int8_t*>(payload + sizeof(float));
    for (std::size_t i = 0; i < kBlock; ++i)
      integers[i] = static_cast<std::int8_t>(steps.take(x[i]));
  }
  static void decode(const std::byte* payload, float* x) {
    const float scale = *reinterpret_cast<const StoredFloat*>(payload);
    const auto* integers = reinterpret_cast<const std::int8_t*>(payload + sizeof(float));
    for (std::size_t i = 0; i < kBlock; ++i) x[i] = static_cast<float>(integers[i]) * scale;
  }
};

struct Int4 {
  static constexpr std::size_t bytes(std::size_t count) { return int4_block_bytes(count); }
  static constexpr float kMost = 7;
  static constexpr std::size_t kPairs = kBlock / 2;

  static void encode(float* x, std::size_t, std::byte* payload) {
    const Steps steps(x, kMost);
    *reinterpret_cast<StoredFloat*>(payload) = steps.scale;
    auto* pairs = reinterpret_cast<std::uint8_t*>(payload + sizeof(float));
    for (std::size_t i = 0; i < kPairs; ++i) {
      const std::uint32_t low = steps.take(x[i]);
      const std::uint32_t high = steps.take(x[i + kPairs]);
      pairs[i] = static_cast<std::uint8_t>((low & 15) | (high << 4));
    }
  }
  static void decode(const std::byte* payload, float* x) {
    const float scale = *reinterpret_cast<const StoredFloat*>(payload);
    const auto* pairs = reinterpret_cast<const std::int8_t*>(payload + sizeof(float));
    for (std::size_t i = 0; i < kPairs; ++i) {
      const std::int32_t pair = pairs[i];
      x[i] = static_cast<float>(static_cast<std::int8_t>(pair * 16) >> 4) * scale;
      x[i + kPairs] = static_cast<float>(pair >> 4) * scale;
    }
  }
};

struct Onebit {
  static constexpr std::size_t bytes(std::size_t count) { return onebit_block_bytes(count); }
  static constexpr std::size_t kLanes = 16;
  static constexpr std::size_t kRows = kBlock / kLanes;

  // In one fixed order: halves are added until one lane is left.
  static float sum(float* lanes) {
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }

  static void encode(float* x, std::size_t count, std::byte* payload) {
    float positive[kLanes] = {};
    float negative[kLanes] = {};
    std::uint32_t negatives[kLanes] = {};
    std::uint32_t bits[kLanes] = {};
    Magnitude largest[kLanes] = {};
#pragma GCC unroll 8
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        const float value = x[row * kLanes + l];
        const std::uint32_t is_negative = bits_of(value) >> 31;
        positive[l] += float_of_bits(choose(is_negative, 0, bits_of(value)));
        negative[l] += float_of_bits(choose(is_negative, bits_of(value), 0));
        negatives[l] += is_negative;
        bits[l] |= is_negative << row;
        const Magnitude here = magnitude_of(value);
        largest[l] = here > largest[l] ? here : largest[l];
      }
    }
    std::uint32_t negative_count = 0;
    Magnitude most = 0;
    auto* bytes = reinterpret_cast<std::uint8_t*>(payload + 4);
    for (std::size_t l = 0; l < kLanes; ++l) {
      bytes[l] = static_cast<std::uint8_t>(bits[l]);
      negative_count += negatives[l];
      most = largest[l] > most ? largest[l] : most;
    }
    const auto positive_count = static_cast<std::uint32_t>(count) - negative_count;
    Stored16* means = reinterpret_cast<Stored16*>(payload);
    means[0] = mean(positive, positive_count, most);
    means[1] = mean(negative, negative_count, most);
    const std::uint32_t p = static_cast<std::uint32_t>(means[0]) << 16;
    const std::uint32_t n = static_cast<std::uint32_t>(means[1]) << 16;
    for (std::size_t i = 0; i < kBlock; ++i) {
      x[i] -= float_of_bits(bits_of(x[i]) >> 31 ? n : p);
    }
  }
  static std::uint16_t mean(float* lanes, std::uint32_t count, Magnitude largest) {
    if (largest >= kInfiniteMagnitude) return bf16_of(float_of_bits(kNanBits));
    if (count == 0) return 0;
    return bf16_of(sum(lanes) / static_cast<float>(count));
  }

  static void decode(const std::byte* payload, float* x) {
    const Stored16* means = reinterpret_cast<const Stored16*>(payload);
    const std::uint32_t p = static_cast<std::uint32_t>(means[0]) << 16;
    const std::uint32_t n = static_cast<std::uint32_t>(means[1]) << 16;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(payload + 4);
    std::uint32_t bits[kLanes];
    for (std::size_t l = 0; l < kLanes; ++l) bits[l] = bytes[l];
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        x[row * kLanes + l] = float_of_bits((bits[l] >> row) & 1 ? n : p);
      }
    }
  }
};

}  // namespace
}  // namespace lockstep::parallel::LOCKSTEP_ISA
