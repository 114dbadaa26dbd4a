// The hot loops of the codecs, compiled for several instruction sets. Internal to compression/.
//
// They are written once, in kernels.inl, as loops that the compiler vectorizes. All instruction
// sets give the same bits: no operations are fused, and sums have a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/simd/kernel_table.h"

namespace lockstep::parallel {

// Elements that share a scale.
inline constexpr std::size_t kBlock = 128;

// The bytes of a block of `count` <= kBlock elements in a payload; kernels.inl draws the layouts.
// Blocks follow one another without gaps.
constexpr std::size_t bf16_block_bytes(std::size_t count) { return 2 * count; }
constexpr std::size_t f16_block_bytes(std::size_t count) { return 1 + 2 * count; }
constexpr std::size_t int8_block_bytes(std::size_t count) { return 4 + count; }
// Elements i and i + kBlock / 2 share a byte.
constexpr std::size_t int4_block_bytes(std::size_t count) {
  return 4 + (count < kBlock / 2 ? count : kBlock / 2);
}
constexpr std::size_t onebit_block_bytes(std::size_t) { return 4 + kBlock / 8; }

// The valid exponents of a block of f16.
inline constexpr std::uint8_t kLeastF16Exponent = 15;
inline constexpr std::uint8_t kMostF16Exponent = 254;

// The magnitude of a float as an integer with the same order; infinity and NaN are largest.
using Magnitude = std::int32_t;
inline constexpr Magnitude kInfiniteMagnitude = 0x7f800000;

// Elements whose magnitude is above a threshold, in order of position.
struct Candidates {
  std::uint32_t* positions;
  Magnitude* magnitudes;
  std::size_t count;
  std::size_t capacity;
};

// Candidates are searched in runs of this many elements; the list needs space for one more run.
inline constexpr std::size_t kRun = 32;

struct CompressionKernels {
  // Encodes values + residual block by block; the residual becomes the encoding error and is always
  // finite. A null residual means none.
  using Encode = void (*)(const float* values, float* residual, std::byte* payload,
                          std::size_t elements);
  // Decodes a payload into `out`, or with `add` adds it to `out`.
  using Decode = void (*)(const std::byte* payload, float* out, std::size_t elements, bool add);
  struct BlockFormat {
    Encode encode;
    Decode decode;
  };
  BlockFormat bf16, f16, int8, int4, onebit;

  // residual += values (if it is not null); returns the largest magnitude of the sums.
  Magnitude (*add)(const float* values, float* residual, std::size_t elements);

  // The same from element `first` on; appends candidates above `threshold` until the list has no
  // space for a run. Returns the element to continue with, and updates `largest`.
  std::size_t (*collect)(const float* values, float* residual, std::size_t first,
                         std::size_t elements, Magnitude threshold, Candidates& candidates,
                         Magnitude& largest);

  // f16 without scales; rounded to nearest even.
  void (*widen_halves)(const std::byte* halves, float* out, std::size_t elements);
  void (*narrow_to_halves)(const float* values, std::byte* halves, std::size_t elements);

  // averages = keep * averages + take * values
  void (*average)(const float* values, float* averages, float keep, float take,
                  std::size_t elements);

  // The sum of squares, in f64.
  double (*squares)(const float* values, std::size_t elements);

  // Sets non-finite values to 0.
  void (*clear_non_finite)(float* values, std::size_t elements);
};

LOCKSTEP_KERNEL_TABLE(CompressionKernels, compression_kernels)

inline const CompressionKernels& compression_kernels() { return compression_kernels(chosen_isa()); }

}  // namespace lockstep::parallel
