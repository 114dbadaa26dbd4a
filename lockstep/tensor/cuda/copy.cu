#include <algorithm>
#include <cstdint>

#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/copy.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr std::size_t kMostBlocks = 264;  // two for each multiprocessor of a large GPU
constexpr int kUnroll = 4;

template <class Word>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(Word* to, const Word* from, std::size_t words) {
  const std::size_t threads = std::size_t{gridDim.x} * kThreads;
  std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * threads < words; i += kUnroll * threads) {
    Word read[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) read[u] = from[i + u * threads];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) to[i + u * threads] = read[u];
  }
  for (; i < words; i += threads) to[i] = from[i];
}

template <class Word>
void copy_words(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  const std::size_t words = bytes / sizeof(Word);
  if (words == 0) return;
  const std::size_t blocks = std::min(kMostBlocks, (words + kThreads - 1) / kThreads);
  copy_kernel<Word><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      reinterpret_cast<Word*>(to), reinterpret_cast<const Word*>(from), words);
  check_launch("a copy on the GPU");
}

}  // namespace

void copy_on_gpu(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  const auto copy_all = [&](auto word) {
    using Word = decltype(word);
    const std::size_t whole = bytes / sizeof(Word) * sizeof(Word);
    copy_words<Word>(to, from, whole, stream);
    copy_words<unsigned char>(to + whole, from + whole, bytes - whole, stream);
  };
  if (bits % sizeof(uint4) == 0) return copy_all(uint4{});
  if (bits % sizeof(unsigned) == 0) return copy_all(unsigned{});
  copy_words<unsigned char>(to, from, bytes, stream);
}

void load_copies() {
  const auto load = [](auto kernel) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), "loading a copy");
  };
  load(&copy_kernel<uint4>);
  load(&copy_kernel<unsigned>);
  load(&copy_kernel<unsigned char>);
}

}  // namespace lockstep::cuda
