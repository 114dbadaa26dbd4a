// The formats of blocks: see parallel/compression/kernels/formats.inl, which draws the payloads.
//
// A warp has a block of 128 elements. Lane l has elements l, l + 32, l + 64 and l + 96 of it, so
// that a warp reads and writes neighbours. In a block that is cut off the missing elements are
// zeros.
#include <type_traits>

#include "lockstep/parallel/compression/cuda/bits.cuh"
#include "lockstep/parallel/compression/cuda/grid.cuh"
#include "lockstep/parallel/compression/cuda/kernels.h"
#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::cuda {
namespace {

using parallel::kBlock;

constexpr unsigned kWarp = 32;
constexpr unsigned kEvery = 0xffffffffu;  // lanes
constexpr int kOwn = kBlock / kWarp;      // elements of a lane
constexpr unsigned kBlocksAtOnce = kCodecThreads / kWarp;

// A block in the registers of a warp.
struct Lane {
  float x[kOwn];
  unsigned lane;
  unsigned count;  // elements of the block

  __device__ __forceinline__ unsigned at(int k) const {
    return lane + static_cast<unsigned>(k) * kWarp;
  }
  __device__ __forceinline__ bool has(int k) const { return at(k) < count; }
};

__device__ __forceinline__ int largest_magnitude(const Lane& block) {
  int largest = 0;
#pragma unroll
  for (int k = 0; k < kOwn; ++k) largest = max(largest, magnitude_of(block.x[k]));
  return __reduce_max_sync(kEvery, largest);
}

// A format leaves in x what the payload does not say, and decodes into x. decode() is false where
// the payload is invalid.
struct Bf16Block {
  static __device__ std::size_t bytes(std::size_t count) { return 2 * count; }

  static __device__ void encode(Lane& block, std::byte* payload) {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const std::uint16_t word = bf16_of(block.x[k]);
      if (block.has(k)) store_16(payload + 2 * block.at(k), word);
      block.x[k] = __fsub_rn(block.x[k], float_of_bf16(word));
    }
  }
  static __device__ bool decode(const std::byte* payload, Lane& block) {
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      block.x[k] = block.has(k) ? float_of_bf16(load_16(payload + 2 * block.at(k))) : 0.0f;
    }
    return true;
  }
};

struct F16Block {
  static constexpr unsigned kExponentOfLargest = 141;
  static __device__ std::size_t bytes(std::size_t count) { return 1 + 2 * count; }
  static __device__ float power_of_two(unsigned exponent) {
    return __uint_as_float(exponent << 23);
  }

  static __device__ void encode(Lane& block, std::byte* payload) {
    const unsigned exponent = min(max(static_cast<unsigned>(largest_magnitude(block)) >> 23,
                                      unsigned{parallel::kLeastF16Exponent}),
                                  unsigned{parallel::kMostF16Exponent});
    if (block.lane == 0) *payload = static_cast<std::byte>(exponent);
    const float up = power_of_two(127 + kExponentOfLargest - exponent);
    const float down = power_of_two(127 - kExponentOfLargest + exponent);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const std::uint16_t word = half_of(__fmul_rn(block.x[k], up));
      if (block.has(k)) store_16(payload + 1 + 2 * block.at(k), word);
      block.x[k] = __fsub_rn(block.x[k], __fmul_rn(float_of_half(word), down));
    }
  }
  static __device__ bool decode(const std::byte* payload, Lane& block) {
    const auto exponent = static_cast<unsigned>(*payload);
    if (exponent < parallel::kLeastF16Exponent || exponent > parallel::kMostF16Exponent) {
      return false;
    }
    const float down = power_of_two(127 - kExponentOfLargest + exponent);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      block.x[k] = block.has(k)
                       ? __fmul_rn(float_of_half(load_16(payload + 1 + 2 * block.at(k))), down)
                       : 0.0f;
    }
    return true;
  }
};

// What int8 and int4 have in common.
struct Steps {
  float scale = 0;
  float inverse = 0;

  static constexpr float kRounder = 0x1.8p23f;
  static constexpr float kLeastMagnitude = 0x1p-119f;

  __device__ Steps(Lane& block, float most) {
    const int magnitude = largest_magnitude(block);
    const float largest = __uint_as_float(static_cast<unsigned>(magnitude));
    if (magnitude >= kMagnitudeOfInfinity) {
      scale = __uint_as_float(kNanBits);
#pragma unroll
      for (int k = 0; k < kOwn; ++k) block.x[k] = 0;
    } else if (largest >= kLeastMagnitude) {
      scale = __fdiv_rn(largest, most);
      inverse = __fdiv_rn(most, largest);
    }
  }
  __device__ std::uint32_t take(float& x) const {
    const float shifted = __fadd_rn(__fmul_rn(x, inverse), kRounder);
    x = __fsub_rn(x, __fmul_rn(__fsub_rn(shifted, kRounder), scale));
    return __float_as_uint(shifted);
  }
};

struct Int8Block {
  static constexpr float kMost = 127;
  static __device__ std::size_t bytes(std::size_t count) { return 4 + count; }

  static __device__ void encode(Lane& block, std::byte* payload) {
    const Steps steps(block, kMost);
    if (block.lane == 0) store_32(payload, __float_as_uint(steps.scale));
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const std::uint32_t integer = steps.take(block.x[k]);
      if (block.has(k)) payload[4 + block.at(k)] = static_cast<std::byte>(integer & 255);
    }
  }
  static __device__ bool decode(const std::byte* payload, Lane& block) {
    const float scale = __uint_as_float(load_32(payload));
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const int integer = block.has(k) ? static_cast<std::int8_t>(payload[4 + block.at(k)]) : 0;
      block.x[k] = __fmul_rn(static_cast<float>(integer), scale);
    }
    return true;
  }
};

// Elements k and k + 2 of a lane share a byte.
struct Int4Block {
  static constexpr float kMost = 7;
  static constexpr int kPairs = kOwn / 2;
  static __device__ std::size_t bytes(std::size_t count) {
    return 4 + (count < kBlock / 2 ? count : kBlock / 2);
  }

  static __device__ void encode(Lane& block, std::byte* payload) {
    const Steps steps(block, kMost);
    if (block.lane == 0) store_32(payload, __float_as_uint(steps.scale));
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const std::uint32_t low = steps.take(block.x[k]);
      const std::uint32_t high = steps.take(block.x[k + kPairs]);
      if (block.has(k)) {
        payload[4 + block.at(k)] = static_cast<std::byte>(((low & 15) | (high << 4)) & 255);
      }
    }
  }
  static __device__ bool decode(const std::byte* payload, Lane& block) {
    const float scale = __uint_as_float(load_32(payload));
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const int pair = block.has(k) ? static_cast<std::int8_t>(payload[4 + block.at(k)]) : 0;
      const int low = static_cast<std::int8_t>(static_cast<unsigned>(pair) << 4) >> 4;
      block.x[k] = __fmul_rn(static_cast<float>(low), scale);
      block.x[k + kPairs] = __fmul_rn(static_cast<float>(pair >> 4), scale);
    }
    return true;
  }
};

// The CPU's 16 lanes are the lanes l and l + 16 of a warp, which have its rows alternately: row 2 k
// is element k of lane l, row 2 k + 1 that of lane l + 16.
struct OnebitBlock {
  static constexpr unsigned kLanes = 16;
  static __device__ std::size_t bytes(std::size_t) { return 4 + kBlock / 8; }

  static __device__ std::uint16_t mean(float sum, unsigned count, int largest) {
    if (largest >= kMagnitudeOfInfinity) return bf16_of(__uint_as_float(kNanBits));
    if (count == 0) return 0;
    return bf16_of(__fdiv_rn(sum, static_cast<float>(count)));
  }
  // Halves are added until one lane is left, as on the CPU.
  static __device__ float sum(float x) {
    for (unsigned half = kLanes / 2; half > 0; half /= 2) {
      x = __fadd_rn(x, __shfl_down_sync(kEvery, x, half, kLanes));
    }
    return __shfl_sync(kEvery, x, 0, kLanes);
  }

  static __device__ void encode(Lane& block, std::byte* payload) {
    const int largest = largest_magnitude(block);
    const bool is_low = block.lane < kLanes;
    float positive = 0;
    float negative = 0;
    unsigned bits = 0;
    unsigned negatives = 0;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const float other = __shfl_xor_sync(kEvery, block.x[k], kLanes);
      const float rows[2] = {is_low ? block.x[k] : other, is_low ? other : block.x[k]};
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const unsigned is_negative = __float_as_uint(rows[odd]) >> 31;
        positive = __fadd_rn(positive, is_negative != 0 ? 0.0f : rows[odd]);
        negative = __fadd_rn(negative, is_negative != 0 ? rows[odd] : 0.0f);
        bits |= is_negative << (2 * k + odd);
        negatives += is_negative;
      }
    }
    if (is_low) payload[4 + block.lane] = static_cast<std::byte>(bits);
    const unsigned negative_count = __reduce_add_sync(kEvery, is_low ? negatives : 0);
    const std::uint16_t p = mean(sum(positive), block.count - negative_count, largest);
    const std::uint16_t n = mean(sum(negative), negative_count, largest);
    if (block.lane == 0) {
      store_16(payload, p);
      store_16(payload + 2, n);
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const bool is_negative = __float_as_uint(block.x[k]) >> 31 != 0;
      block.x[k] = __fsub_rn(block.x[k], float_of_bf16(is_negative ? n : p));
    }
  }
  static __device__ bool decode(const std::byte* payload, Lane& block) {
    const float p = float_of_bf16(load_16(payload));
    const float n = float_of_bf16(load_16(payload + 2));
    const auto bits = static_cast<unsigned>(payload[4 + block.lane % kLanes]);
    const unsigned odd = block.lane / kLanes;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      block.x[k] = (bits >> (2 * static_cast<unsigned>(k) + odd) & 1) != 0 ? n : p;
    }
    return true;
  }
};

// f(block, its number) for the blocks of this warp.
template <class F>
__device__ __forceinline__ void for_blocks(std::size_t elements, F&& f) {
  const unsigned warp = threadIdx.x / kWarp;
  const std::size_t step = std::size_t{gridDim.x} * kBlocksAtOnce;
  for (std::size_t index = std::size_t{blockIdx.x} * kBlocksAtOnce + warp;
       index * kBlock < elements; index += step) {
    Lane block;
    block.lane = threadIdx.x % kWarp;
    block.count = static_cast<unsigned>(min(std::size_t{kBlock}, elements - index * kBlock));
    f(block, index);
  }
}

template <class Format, class T, bool kFeedback>
__global__ void __launch_bounds__(kCodecThreads)
    encode_kernel(const T* values, float* residual, std::byte* payload, std::size_t elements) {
  for_blocks(elements, [&](Lane& block, std::size_t index) {
    const std::size_t first = index * kBlock;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      block.x[k] = block.has(k) ? widened(values[first + block.at(k)]) : 0.0f;
      if (kFeedback && block.has(k)) {
        block.x[k] = __fadd_rn(block.x[k], residual[first + block.at(k)]);
      }
    }
    Format::encode(block, payload + index * Format::bytes(kBlock));
    if constexpr (kFeedback) {
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        if (block.has(k)) residual[first + block.at(k)] = finite_or_zero(block.x[k]);
      }
    }
  });
}

template <class Format>
__device__ __forceinline__ bool decode_block(const std::byte* payload, Lane& block,
                                             std::size_t index, CodecWords* words) {
  if (Format::decode(payload + index * Format::bytes(kBlock), block)) return true;
  if (block.lane == 0) atomicMin(&words->fault, codec_fault(CodecFault::kExponent, index));
  return false;
}

template <class Format, class T, bool kAdd>
__global__ void __launch_bounds__(kCodecThreads)
    decode_kernel(const std::byte* payload, T* out, std::size_t elements, CodecWords* words) {
  for_blocks(elements, [&](Lane& block, std::size_t index) {
    if (!decode_block<Format>(payload, block, index, words)) return;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (!block.has(k)) continue;
      T& to = out[index * kBlock + block.at(k)];
      to = narrowed<T>(kAdd ? __fadd_rn(widened(to), block.x[k]) : block.x[k]);
    }
  });
}

template <class Format, class T>
__global__ void __launch_bounds__(kCodecThreads)
    sum_kernel(const std::byte* payloads, std::size_t count, std::size_t each, std::size_t own,
               const T* own_part, T* out, std::size_t elements, CodecWords* words) {
  for_blocks(elements, [&](Lane& block, std::size_t index) {
    float sums[kOwn] = {};
    for (std::size_t i = 0; i < count; ++i) {
      if (i == own) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
          block.x[k] = block.has(k) ? widened(own_part[index * kBlock + block.at(k)]) : 0.0f;
        }
      } else if (!decode_block<Format>(payloads + i * each, block, index, words)) {
        return;
      }
#pragma unroll
      for (int k = 0; k < kOwn; ++k) sums[k] = __fadd_rn(sums[k], block.x[k]);
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      if (block.has(k)) out[index * kBlock + block.at(k)] = narrowed<T>(sums[k]);
    }
  });
}

// f(Format(), T()). Parts of 16 bits are quantised (zero/part_wire.h), so other formats have f32.
template <class F>
void with_format(BlockFormat format, DType dtype, F&& f) {
  switch (format) {
    case BlockFormat::kBf16:
      return f(Bf16Block(), float());
    case BlockFormat::kF16:
      return f(F16Block(), float());
    case BlockFormat::kInt8:
      return with_codec_type(dtype, [&](auto number) { f(Int8Block(), number); });
    case BlockFormat::kInt4:
      return with_codec_type(dtype, [&](auto number) { f(Int4Block(), number); });
    case BlockFormat::kOnebit:
      return f(OnebitBlock(), float());
  }
}

unsigned blocks_for(std::size_t elements) {
  return codec_blocks((elements + kBlock - 1) / kBlock * kWarp);
}

}  // namespace

void encode_blocks(BlockFormat format, CodecElements values, float* residual, std::byte* payload,
                   cudaStream_t stream) {
  if (values.count == 0) return;
  with_format(format, values.dtype, [&]<class Format, class T>(Format, T) {
    const auto* from = static_cast<const T*>(values.data);
    const unsigned blocks = blocks_for(values.count);
    if constexpr (std::is_same_v<T, float>) {
      if (residual != nullptr) {
        encode_kernel<Format, float, true>
            <<<blocks, kCodecThreads, 0, stream>>>(from, residual, payload, values.count);
        return;
      }
    }
    encode_kernel<Format, T, false>
        <<<blocks, kCodecThreads, 0, stream>>>(from, nullptr, payload, values.count);
  });
  check_launch("compression: encoding blocks");
}

void decode_blocks(BlockFormat format, const std::byte* payload, CodecElements out, bool add,
                   CodecWords* words, cudaStream_t stream) {
  if (out.count == 0) return;
  with_format(format, out.dtype, [&]<class Format, class T>(Format, T) {
    auto* const to = static_cast<T*>(out.data);
    const unsigned blocks = blocks_for(out.count);
    if constexpr (std::is_same_v<T, float>) {
      if (add) {
        decode_kernel<Format, float, true>
            <<<blocks, kCodecThreads, 0, stream>>>(payload, to, out.count, words);
        return;
      }
    }
    decode_kernel<Format, T, false>
        <<<blocks, kCodecThreads, 0, stream>>>(payload, to, out.count, words);
  });
  check_launch("compression: decoding blocks");
}

void sum_blocks(BlockFormat format, const std::byte* payloads, std::size_t count, std::size_t each,
                std::size_t own, const void* own_part, CodecElements out, CodecWords* words,
                cudaStream_t stream) {
  if (out.count == 0) return;
  with_format(format, out.dtype, [&]<class Format, class T>(Format, T) {
    sum_kernel<Format, T><<<blocks_for(out.count), kCodecThreads, 0, stream>>>(
        payloads, count, each, own, static_cast<const T*>(own_part), static_cast<T*>(out.data),
        out.count, words);
  });
  check_launch("compression: summing blocks");
}

void load_block_kernels() {
  for (const BlockFormat format : {BlockFormat::kBf16, BlockFormat::kF16, BlockFormat::kInt8,
                                   BlockFormat::kInt4, BlockFormat::kOnebit}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      with_format(format, dtype, [&]<class Format, class T>(Format, T) {
        load_codec_kernel(&encode_kernel<Format, T, false>);
        load_codec_kernel(&decode_kernel<Format, T, false>);
        load_codec_kernel(&sum_kernel<Format, T>);
        if constexpr (std::is_same_v<T, float>) {
          load_codec_kernel(&encode_kernel<Format, float, true>);
          load_codec_kernel(&decode_kernel<Format, float, true>);
        }
      });
    }
  }
}

}  // namespace lockstep::cuda
