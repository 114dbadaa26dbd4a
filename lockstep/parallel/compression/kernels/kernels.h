// The hot loops of the codecs, compiled for several instruction sets. Internal to compression/.
//
// They are written once, in kernels.inl, as loops that the compiler makes vectors of. All sets give
// the same bits: nothing is fused, and sums are made in one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/simd/kernel_table.h"

namespace lockstep::parallel {

// Elements that share a scale.
inline constexpr std::size_t kBlock = 128;

// What one block of `count` <= kBlock elements takes in a payload; kernels.inl draws the layouts.
// Blocks follow one another without gaps.
constexpr std::size_t bf16_block_bytes(std::size_t count) { return 2 * count; }
constexpr std::size_t f16_block_bytes(std::size_t count) { return 1 + 2 * count; }
constexpr std::size_t int8_block_bytes(std::size_t count) { return 4 + count; }
// Elements i and i + kBlock / 2 share a byte.
constexpr std::size_t int4_block_bytes(std::size_t count) {
  return 4 + (count < kBlock / 2 ? count : kBlock / 2);
}
constexpr std::size_t onebit_block_bytes(std::size_t) { return 4 + kBlock / 8; }

// The exponents that a block of f16 may have.
inline constexpr std::uint8_t kLeastF16Exponent = 15;
inline constexpr std::uint8_t kMostF16Exponent = 254;

// The magnitude of a float as an integer: larger ones are larger, infinity and NaN largest.
using Magnitude = std::int32_t;
inline constexpr Magnitude kInfiniteMagnitude = 0x7f800000;

// Elements whose magnitude is above a threshold, in order of position.
struct Candidates {
  std::uint32_t* positions;
  Magnitude* magnitudes;
  std::size_t count;
  std::size_t capacity;
};

// Candidates are looked for in runs of this many elements; there must be room for one more run.
inline constexpr std::size_t kRun = 32;

struct CompressionKernels {
  // Of values + residual, block by block; the residual becomes what the payload does not say, and
  // never anything but finite. It may be null: then the values alone are encoded.
  using Encode = void (*)(const float* values, float* residual, std::byte* payload,
                          std::size_t elements);
  // `out` becomes, or with `add` grows by, what the payload says.
  using Decode = void (*)(const std::byte* payload, float* out, std::size_t elements, bool add);
  struct BlockFormat {
    Encode encode;
    Decode decode;
  };
  BlockFormat bf16, f16, int8, int4, onebit;

  // residual += values (where it is not null); the largest magnitude of the sums.
  Magnitude (*add)(const float* values, float* residual, std::size_t elements);

  // The same from element `first` on, and candidates above `threshold` are appended until there is
  // no room for a run. Gives the element to go on with; `largest` grows to the largest magnitude.
  std::size_t (*collect)(const float* values, float* residual, std::size_t first,
                         std::size_t elements, Magnitude threshold, Candidates& candidates,
                         Magnitude& largest);

  // Halves without scales, as tensors have them; rounded to nearest even.
  void (*widen_halves)(const std::byte* halves, float* out, std::size_t elements);
  void (*narrow_to_halves)(const float* values, std::byte* halves, std::size_t elements);

  // averages = keep * averages + take * values
  void (*average)(const float* values, float* averages, float keep, float take,
                  std::size_t elements);

  // The sum of squares, in f64.
  double (*squares)(const float* values, std::size_t elements);

  // What is not finite becomes 0.
  void (*clear_non_finite)(float* values, std::size_t elements);
};

LOCKSTEP_KERNEL_TABLE(CompressionKernels, compression_kernels)

inline const CompressionKernels& compression_kernels() { return compression_kernels(chosen_isa()); }

}  // namespace lockstep::parallel
