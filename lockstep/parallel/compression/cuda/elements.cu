// Conversions and averages of elements one by one, as compression/kernels/kernels.inl does
// them, and the clipping of compression/own_momentum.h.
#include <cmath>

#include "lockstep/parallel/compression/cuda/bits.cuh"
#include "lockstep/parallel/compression/cuda/grid.cuh"
#include "lockstep/parallel/compression/cuda/kernels.h"

namespace lockstep::cuda {
namespace {

template <class From, class To>
__global__ void __launch_bounds__(kCodecThreads)
    convert_kernel(const From* from, To* to, std::size_t count) {
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) {
    to[i] = narrowed<To>(widened(from[i]));
  }
}

__global__ void __launch_bounds__(kCodecThreads)
    scale_kernel(float* values, float factor, std::size_t count) {
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) {
    values[i] = __fmul_rn(values[i], factor);
  }
}

template <class Word>
__global__ void __launch_bounds__(kCodecThreads) clear_kernel(Word* words, std::size_t count) {
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) words[i] = 0;
}

__global__ void __launch_bounds__(kCodecThreads)
    clear_non_finite_kernel(float* values, std::size_t count, const unsigned* non_finite) {
  if (*non_finite == 0) return;
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) {
    values[i] = finite_or_zero(values[i]);
  }
}

__global__ void __launch_bounds__(kCodecThreads)
    average_kernel(const float* values, float* averages, float keep, float take,
                   const CodecWords* words, std::size_t count) {
  const float taken = __fmul_rn(take, words->clip);
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) {
    averages[i] = __fadd_rn(__fmul_rn(keep, averages[i]), __fmul_rn(taken, values[i]));
  }
}

// The sum over a block of threads in a fixed order, valid in thread 0.
__device__ double block_sum(double sum) {
  __shared__ double sums[kCodecThreads];
  sums[threadIdx.x] = sum;
  for (unsigned half = kCodecThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

// partials[block] = the sum of squares of the elements of a block of threads.
__global__ void __launch_bounds__(kCodecThreads)
    squares_kernel(const float* values, std::size_t count, double* partials) {
  double sum = 0;
  for (std::size_t i = codec_first(); i < count; i += codec_stride()) {
    const auto x = static_cast<double>(values[i]);
    sum = fma(x, x, sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// One block of threads.
__global__ void __launch_bounds__(kCodecThreads)
    clip_kernel(const double* partials, unsigned count, double limit, bool first,
                CodecWords* words) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += kCodecThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  words->squares = (first ? 0.0 : words->squares) + sum;
  const double norm = sqrt(words->squares);
  words->clip = isfinite(norm) && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

__global__ void no_clip_kernel(CodecWords* words) { words->clip = 1; }

template <class Word>
void clear_words(void* data, std::size_t bytes, cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(Word);
  if (count == 0) return;
  clear_kernel<Word>
      <<<codec_blocks(count), kCodecThreads, 0, stream>>>(static_cast<Word*>(data), count);
  check_launch("compression: clearing");
}

static_assert(kCodecMostBlocks <= kCodecPartials);

}  // namespace

void convert_elements(CodecElements from, CodecElements to, cudaStream_t stream) {
  if (from.count == 0) return;
  with_codec_type(from.dtype, [&]<class From>(From) {
    with_codec_type(to.dtype, [&]<class To>(To) {
      convert_kernel<From, To><<<codec_blocks(from.count), kCodecThreads, 0, stream>>>(
          static_cast<const From*>(from.data), static_cast<To*>(to.data), from.count);
    });
  });
  check_launch("compression: conversion");
}

void scale_elements(float* values, float factor, std::size_t count, cudaStream_t stream) {
  if (count == 0) return;
  scale_kernel<<<codec_blocks(count), kCodecThreads, 0, stream>>>(values, factor, count);
  check_launch("compression: scaling");
}

void clear_bytes(void* data, std::size_t bytes, cudaStream_t stream) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(data) % sizeof(unsigned) == 0;
  const std::size_t whole = is_aligned ? bytes / sizeof(unsigned) * sizeof(unsigned) : 0;
  clear_words<unsigned>(data, whole, stream);
  clear_words<unsigned char>(static_cast<std::byte*>(data) + whole, bytes - whole, stream);
}

void clear_non_finite(float* values, std::size_t count, const unsigned* non_finite,
                      cudaStream_t stream) {
  if (count == 0) return;
  clear_non_finite_kernel<<<codec_blocks(count), kCodecThreads, 0, stream>>>(values, count,
                                                                             non_finite);
  check_launch("compression: clearing what is not finite");
}

void average_elements(const float* values, float* averages, float keep, float take,
                      std::size_t count, const CodecWords* words, cudaStream_t stream) {
  if (count == 0) return;
  average_kernel<<<codec_blocks(count), kCodecThreads, 0, stream>>>(values, averages, keep, take,
                                                                    words, count);
  check_launch("compression: averaging");
}

void clip_elements(const float* gradients, std::size_t count, double limit, bool first,
                   CodecWords* words, double* partials, cudaStream_t stream) {
  if (limit == 0) {
    no_clip_kernel<<<1, 1, 0, stream>>>(words);
    return check_launch("compression: clipping");
  }
  const unsigned blocks = codec_blocks(count);
  squares_kernel<<<blocks, kCodecThreads, 0, stream>>>(gradients, count, partials);
  check_launch("compression: squares");
  clip_kernel<<<1, kCodecThreads, 0, stream>>>(partials, blocks, limit, first, words);
  check_launch("compression: clipping");
}

void load_element_kernels() {
  for (const DType one : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType other : {DType::kF32, DType::kBF16, DType::kF16}) {
      with_codec_type(one, [&]<class From>(From) {
        with_codec_type(other, [&]<class To>(To) { load_codec_kernel(&convert_kernel<From, To>); });
      });
    }
  }
  load_codec_kernel(&scale_kernel);
  load_codec_kernel(&clear_kernel<unsigned>);
  load_codec_kernel(&clear_kernel<unsigned char>);
  load_codec_kernel(&clear_non_finite_kernel);
  load_codec_kernel(&average_kernel);
  load_codec_kernel(&squares_kernel);
  load_codec_kernel(&clip_kernel);
  load_codec_kernel(&no_clip_kernel);
}

}  // namespace lockstep::cuda
