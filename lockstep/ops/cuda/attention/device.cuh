// The instructions that the attention kernels use, one function each, and the launch of a kernel.
//
// A fragment is the part of a small matrix that one lane of a warp holds. The product m16n8k16
// multiplies A, 16 by 16, with B, 16 by 8, both of a 16-bit type, and adds to C, 16 by 8 in f32.
// With group = lane / 4 and pair = 2 (lane % 4), a lane holds
//
//   A  [0] row group, columns pair and pair + 1      [1] row group + 8, the same columns
//      [2] row group, columns pair + 8 and + 9       [3] row group + 8, the same columns
//   B  [0] rows pair and pair + 1, column group      [1] rows pair + 8 and + 9, the same column
//   C  [0] row group, column pair   [1] row group, column pair + 1   [2], [3] the same 8 rows below
//
// ldmatrix reads four 8 by 8 matrices from shared memory at once. Lane i passes the address of row
// i % 8 of matrix i / 8. It receives, of every matrix, the two elements of row `group` from column
// `pair` on; transposed, the elements of rows `pair` and `pair` + 1 in column `group`.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda::attention {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char bytes[];
  return bytes;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Copies from global to shared memory in the background. Where `from` is not valid it is not read,
// and the copy writes zeros. Both addresses are aligned to the bytes copied.
__device__ __forceinline__ void copy_16_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_4_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
// Waits until the copies of this thread have arrived.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}

// c += a b, for the type of the unused argument.
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1, __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x with a relative error of up to 2^-22; 0 for -infinity.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Queues a kernel on a stream, unless it has no blocks.
template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), std::int64_t blocks, int threads,
            std::size_t shared_bytes, cudaStream_t stream, Parameters... arguments) {
  if (blocks == 0) return;
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name);
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes, stream>>>(
      arguments...);
  check_launch(name);
}

}  // namespace lockstep::cuda::attention
