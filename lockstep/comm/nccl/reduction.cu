#include <algorithm>

#include "lockstep/comm/cuda/combine.cuh"
#include "lockstep/comm/nccl/reduction.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::nccl {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 1024;

__device__ std::size_t first_element() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::size_t all_threads() { return std::size_t{gridDim.x} * blockDim.x; }

template <class T, bool kSums>
__global__ void tree_kernel(const T* blocks, std::size_t stride, int ranks, T* out,
                            std::size_t count, ReduceOp::Kind op) {
  for (std::size_t i = first_element(); i < count; i += all_threads()) {
    cuda::Tree<T, kSums, kMostTreeLevels> tree;
    for (int r = 0; r < ranks; ++r) {
      tree.add(r, cuda::widen(blocks[static_cast<std::size_t>(r) * stride + i]), op);
    }
    out[i] = cuda::narrow<T>(tree.finish(ranks, op));
  }
}

template <class T>
__global__ void mean_kernel(T* data, std::size_t count, int ranks) {
  for (std::size_t i = first_element(); i < count; i += all_threads()) {
    data[i] = cuda::narrow<T>(cuda::mean_of(cuda::widen(data[i]), ranks));
  }
}

unsigned thread_blocks(std::size_t count) {
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

void launch_tree(const Blocks& blocks, std::byte* out, std::size_t count, DType dtype,
                 ReduceOp::Kind op, cudaStream_t stream) {
  if (count == 0) return;
  cuda::with_kernel(dtype, op, [&](auto zero, auto sums) {
    using T = decltype(zero);
    tree_kernel<T, decltype(sums)::value><<<thread_blocks(count), kThreads, 0, stream>>>(
        reinterpret_cast<const T*>(blocks.first), blocks.stride, blocks.ranks,
        reinterpret_cast<T*>(out), count, op);
  });
  cuda::check_launch("a reduction over ranks");
}

void launch_mean(std::byte* data, std::size_t count, DType dtype, int ranks, cudaStream_t stream) {
  if (count == 0) return;
  cuda::with_device_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    mean_kernel<T>
        <<<thread_blocks(count), kThreads, 0, stream>>>(reinterpret_cast<T*>(data), count, ranks);
  });
  cuda::check_launch("a mean over ranks");
}

void load_reductions() {
  const auto load = [](auto kernel) {
    cudaFuncAttributes attributes;
    cuda::check(cudaFuncGetAttributes(&attributes, kernel), "loading a reduction");
  };
  for (const DType dtype : kAllDTypes) {
    cuda::with_device_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      load(&tree_kernel<T, true>);
      load(&tree_kernel<T, false>);
      load(&mean_kernel<T>);
    });
  }
}

}  // namespace lockstep::nccl
