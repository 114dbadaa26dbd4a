// Kernels that begin while the one before them still runs, as in generating text, where a step is
// a hundred short kernels and the pauses between them would be most of the time.
//
// launch_overlapped() queues a kernel that may be started early (CUDA's programmatic dependent
// launch, from compute capability 9.0 on). The kernel calls start_next() at its beginning, so that
// its own successor may be started early too, and wait_for_previous() before it reads or writes
// what other kernels read or write. What it does before is limited to prefetch_l2() of memory that
// it will read: L2 is the same for the whole GPU, so a line that is prefetched too early is still
// read as it was written last. After a kernel that knows nothing of this, all of it starts late.
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
                       dim3 blocks, unsigned threads, std::size_t shared_bytes,
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
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  config.attrs = &early;
  config.numAttrs = context.overlaps_kernels ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace lockstep::cuda
