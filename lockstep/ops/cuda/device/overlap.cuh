// Kernels that begin while the previous one still runs. A step of text generation, or of training
// with few tokens, is hundreds of short kernels, so the pauses between them would take much of the
// time.
//
// launch_overlapped() queues a kernel that may start early (CUDA's programmatic dependent launch,
// from compute capability 9.0 on). The kernel calls start_next() at its beginning, so that its
// successor may start early too. It calls wait_for_previous() before it accesses memory that other
// kernels access. Before that it may only call prefetch_l2() on memory that it will read. All
// multiprocessors share the L2 cache, so a line that is prefetched too early still returns the last
// value written. After a kernel without start_next() it starts when that kernel has ended.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {

__device__ __forceinline__ void start_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void prefetch_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

template <class... Parameters>
void launch_overlapped(const Context& context, const char* name, void (*kernel)(Parameters...),
                       dim3 blocks, dim3 threads, std::size_t shared_bytes,
                       Parameters... arguments) {
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name);
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  config.attrs = &early;
  config.numAttrs = context.overlaps_kernels ? 1 : 0;
  note_operation(name);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace lockstep::cuda
