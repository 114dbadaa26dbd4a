// Products of a warpgroup (128 threads): d (+)= a b, where d has 64 rows and N columns of f32 in
// registers, b lies in shared memory and a in shared memory or registers.
//
// Tiles in shared memory are columns of 64 elements wide: a row is 128 bytes, and its eight chunks
// of 16 bytes are swizzled, chunk c of row r at place c ^ (r % 8). Copies of boxes write this
// layout (CU_TENSOR_MAP_SWIZZLE_128B), and each tile begins at a multiple of 1024 bytes. An operand
// is read along its rows (the product sums over a tile's columns) or across them (the product sums
// over a tile's rows; "transposed").
//
// Registers of d: thread t, of warp w of the warpgroup and lane l, holds in d[i] row
// 16 w + l / 4 + 8 ((i / 2) % 2), column 8 (i / 4) + 2 (l % 4) + i % 2. A fragment of a for 16
// steps of the sum is four registers of two elements: those of d[8 k] to d[8 k + 7], packed by
// twos.
//
// A product runs asynchronously. Call start_products before it, so that earlier writes to its
// registers are ordered. end_products closes a group of products. Wait for the group
// (wait_for_products) before reading or writing registers that the products use.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace lockstep::cuda::hopper {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Keeps the compiler from moving reads and writes of the registers across this point.
template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(std::uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}
// Marks the registers as undefined before a product that overwrites them.
template <int kCount>
__device__ __forceinline__ void forget(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "=f"(registers[i])::"memory");
}

__device__ __forceinline__ void start_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` groups run.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// A tile as an operand: the lower half of its wgmma descriptor. The upper half is the same for all
// tiles: swizzled by 128 bytes, and 1024 bytes from eight rows to the next eight.
struct Operand {
  std::uint32_t low;
  __device__ __forceinline__ std::uint64_t descriptor() const {
    constexpr std::uint64_t kHigh = (std::uint64_t{1} << 30) | (1024 >> 4);
    return (kHigh << 32) | low;
  }
};
// `next_columns`, for operands that are read across and wider than one tile: the bytes from a tile
// to the tile with the next 64 columns.
__device__ __forceinline__ Operand operand(std::uint32_t address, std::uint32_t next_columns = 16) {
  return {(next_columns >> 4 << 16) | (address >> 4)};
}
// The operand moved by `bytes`: 32 for the next 16 columns of a tile that is read along its rows,
// 2048 for the next 16 rows of a tile that is read across.
__device__ __forceinline__ Operand further(Operand operand, std::uint32_t bytes) {
  return {operand.low + (bytes >> 4)};
}

#define LOCKSTEP_LIST_32                                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LOCKSTEP_LIST_48 \
  LOCKSTEP_LIST_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LOCKSTEP_LIST_64 \
  LOCKSTEP_LIST_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LOCKSTEP_LIST_80 \
  LOCKSTEP_LIST_64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define LOCKSTEP_LIST_88 LOCKSTEP_LIST_80 ", %80, %81, %82, %83, %84, %85, %86, %87"

#define LOCKSTEP_OUT_8(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define LOCKSTEP_OUT_16(i) LOCKSTEP_OUT_8(i), LOCKSTEP_OUT_8(i + 8)
#define LOCKSTEP_OUT_32 LOCKSTEP_OUT_16(0), LOCKSTEP_OUT_16(16)
#define LOCKSTEP_OUT_48 LOCKSTEP_OUT_32, LOCKSTEP_OUT_16(32)
#define LOCKSTEP_OUT_64 LOCKSTEP_OUT_48, LOCKSTEP_OUT_16(48)
#define LOCKSTEP_OUT_80 LOCKSTEP_OUT_64, LOCKSTEP_OUT_16(64)
#define LOCKSTEP_OUT_88 LOCKSTEP_OUT_80, LOCKSTEP_OUT_8(80)

#define LOCKSTEP_PRODUCT(N, COUNT, TYPE, PREDICATE, OPERANDS)                                \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " PREDICATE ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
  "k16.f32." TYPE "." TYPE " {" LOCKSTEP_LIST_##COUNT "}, " OPERANDS ";\n}\n"

#define LOCKSTEP_SHARED(N, COUNT, A, B, ADD, TA, TB)                                          \
  if constexpr (kN == N) {                                                                    \
    if constexpr (std::is_same_v<T, __half>) {                                                \
      asm volatile(LOCKSTEP_PRODUCT(N, COUNT, "f16", ADD, A ", " B ", p, 1, 1, " TA ", " TB)  \
                   : LOCKSTEP_OUT_##COUNT                                                     \
                   : "l"(a.descriptor()), "l"(b.descriptor()), "r"(add), "n"(kTransposedA),   \
                     "n"(kTransposedB));                                                      \
    } else {                                                                                  \
      asm volatile(LOCKSTEP_PRODUCT(N, COUNT, "bf16", ADD, A ", " B ", p, 1, 1, " TA ", " TB) \
                   : LOCKSTEP_OUT_##COUNT                                                     \
                   : "l"(a.descriptor()), "l"(b.descriptor()), "r"(add), "n"(kTransposedA),   \
                     "n"(kTransposedB));                                                      \
    }                                                                                         \
  }

#define LOCKSTEP_REGISTERS(N, COUNT, A0, A1, A2, A3, B, ADD, TB)                             \
  if constexpr (kN == N) {                                                                   \
    if constexpr (std::is_same_v<T, __half>) {                                               \
      asm volatile(LOCKSTEP_PRODUCT(N, COUNT, "f16", ADD,                                    \
                                    "{" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, " TB) \
                   : LOCKSTEP_OUT_##COUNT                                                    \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b.descriptor()), "r"(add),      \
                     "n"(kTransposedB));                                                     \
    } else {                                                                                 \
      asm volatile(LOCKSTEP_PRODUCT(N, COUNT, "bf16", ADD,                                   \
                                    "{" A0 ", " A1 ", " A2 ", " A3 "}, " B ", p, 1, 1, " TB) \
                   : LOCKSTEP_OUT_##COUNT                                                    \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b.descriptor()), "r"(add),      \
                     "n"(kTransposedB));                                                     \
    }                                                                                        \
  }

// Sixteen steps of the sum; `add` is 0 where d begins at zero.
template <class T, int kN, int kTransposedA, int kTransposedB>
__device__ __forceinline__ void multiply_shared(float (&d)[kN / 2], Operand a, Operand b, int add) {
  static_assert(kN == 64 || kN == 96 || kN == 128 || kN == 160 || kN == 176);
  LOCKSTEP_SHARED(64, 32, "%32", "%33", "%34", "%35", "%36")
  LOCKSTEP_SHARED(96, 48, "%48", "%49", "%50", "%51", "%52")
  LOCKSTEP_SHARED(128, 64, "%64", "%65", "%66", "%67", "%68")
  LOCKSTEP_SHARED(160, 80, "%80", "%81", "%82", "%83", "%84")
  LOCKSTEP_SHARED(176, 88, "%88", "%89", "%90", "%91", "%92")
}
template <class T, int kN, int kTransposedB>
__device__ __forceinline__ void multiply_registers(float (&d)[kN / 2], std::uint32_t a0,
                                                   std::uint32_t a1, std::uint32_t a2,
                                                   std::uint32_t a3, Operand b, int add) {
  static_assert(kN == 64 || kN == 128);
  LOCKSTEP_REGISTERS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
  LOCKSTEP_REGISTERS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
}

#undef LOCKSTEP_SHARED
#undef LOCKSTEP_REGISTERS
#undef LOCKSTEP_PRODUCT
#undef LOCKSTEP_LIST_32
#undef LOCKSTEP_LIST_48
#undef LOCKSTEP_LIST_64
#undef LOCKSTEP_LIST_80
#undef LOCKSTEP_LIST_88
#undef LOCKSTEP_OUT_8
#undef LOCKSTEP_OUT_16
#undef LOCKSTEP_OUT_32
#undef LOCKSTEP_OUT_48
#undef LOCKSTEP_OUT_64
#undef LOCKSTEP_OUT_80
#undef LOCKSTEP_OUT_88

// ---- products of tiles

// d = a b^T, summed over kSum columns; both are read along their rows. Where kSum exceeds the
// columns of a tile, the next tiles are next_a and next_b bytes further.
template <class T, int kN, int kSum>
__device__ __forceinline__ void multiply_rows(float (&d)[kN / 2], Operand a, int next_a, Operand b,
                                              int next_b) {
#pragma unroll
  for (int k = 0; k < kSum / 16; ++k) {
    multiply_shared<T, kN, 0, 0>(d, further(a, k / 4 * next_a + k % 4 * 32),
                                 further(b, k / 4 * next_b + k % 4 * 32), k != 0);
  }
}
// d = a^T b, summed over kSum rows: both are read across.
template <class T, int kN, int kSum>
__device__ __forceinline__ void multiply_across(float (&d)[kN / 2], Operand a, Operand b) {
#pragma unroll
  for (int k = 0; k < kSum / 16; ++k) {
    multiply_shared<T, kN, 1, 1>(d, further(a, 2048 * k), further(b, 2048 * k), k != 0);
  }
}
// d (+)= a b, summed over kSum rows of b, which is read across; a is in registers.
template <class T, int kN, int kSum>
__device__ __forceinline__ void multiply_fragments(float (&d)[kN / 2],
                                                   const std::uint32_t (&a)[kSum / 4], Operand b,
                                                   int add) {
#pragma unroll
  for (int k = 0; k < kSum / 16; ++k) {
    multiply_registers<T, kN, 1>(d, a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3],
                                 further(b, 2048 * k), k != 0 ? 1 : add);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace lockstep::cuda::hopper
