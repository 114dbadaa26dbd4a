// Hopper's instructions for copies and barriers, one function each. They take 32-bit addresses of
// shared memory.
//
// An mbarrier counts arrivals and the bytes of copies. When both are complete its phase flips and
// counting restarts. A waiter names the parity of the phase whose end it waits for; the first phase
// has parity 0. A wait for parity 1 on a new barrier returns at once.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace lockstep::cuda::hopper {

#ifdef LOCKSTEP_HOPPER_GUARD
// For tests: a wait of half a second writes barrier (its address), parity, block and thread here,
// in host memory.
__device__ unsigned int* stuck;

struct Guard {
  unsigned long long start = 0;
  __device__ static unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
  }
  __device__ void poll(std::uint32_t what, std::uint32_t parity) {
    if (start == 0) start = now();
    if (now() - start < 500'000'000ull) return;
    stuck[0] = what;
    stuck[1] = parity;
    stuck[2] = blockIdx.x;
    stuck[3] = threadIdx.x;
    stuck[4] = 1;
    start = now();
  }
};
#else
struct Guard {
  __device__ static void poll(std::uint32_t, std::uint32_t) {}
};
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After the init_barrier()s, before the block's __syncthreads().
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ bool has_flipped(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t flipped;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(flipped)
      : "r"(barrier), "r"(parity)
      : "memory");
  return flipped != 0;
}
__device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity) {
  Guard guard;
  while (!has_flipped(barrier, parity)) guard.poll(barrier, parity);
}
// Only keeps instructions before it and after it in order. ptxas moves no computation across the
// branch of a wait. Without that branch it moves the wait for a product ahead of computations that
// should run beside the product. `fresh` is a barrier without arrivals.
__device__ __forceinline__ void keep_order(std::uint32_t fresh) { wait(fresh, 1); }

// A place in a ring of buffers, and the parity of the round it is in.
template <int kStages>
struct Ring {
  static_assert((kStages & (kStages - 1)) == 0);
  std::uint32_t count = 0;

  __device__ __forceinline__ std::uint32_t stage() const { return count % kStages; }
  __device__ __forceinline__ std::uint32_t parity() const { return count / kStages % 2; }
  __device__ __forceinline__ void advance() { ++count; }
};

// ---- named barriers, among whole warps

__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_threads(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- copies

// Makes ordinary stores to shared memory visible to copies and wgmma after the next barrier.
__device__ __forceinline__ void fence_shared_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies a box of a tensor of four dimensions. The barrier counts all its bytes, also those outside
// the tensor, which become zeros.
__device__ __forceinline__ void load_box(std::uint32_t to, const CUtensorMap& map,
                                         std::uint32_t barrier, int column, int head, int row,
                                         int sequence) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(sequence)
      : "memory");
}
// Parts of the box outside the tensor are not written.
__device__ __forceinline__ void store_box(const CUtensorMap& map, std::uint32_t from, int column,
                                          int head, int row, int sequence) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(column), "r"(head), "r"(row), "r"(sequence)
      : "memory");
}

// `bytes` and both addresses are multiples of 16.
__device__ __forceinline__ void load_bytes(std::uint32_t to, const void* from, int bytes,
                                           std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void store_bytes(void* to, std::uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void add_floats(float* to, std::uint32_t from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}

// Ends a group of stores and adds of this thread.
__device__ __forceinline__ void end_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all groups have read their shared memory.
__device__ __forceinline__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until all groups have written their results.
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- registers

// All warps of a warpgroup call these.
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- numbers

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats, rounded: `low` in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <>
__device__ __forceinline__ std::uint32_t pack<__half>(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Four matrices of 8 x 8 16-bit elements; lane i passes the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices(std::uint32_t to, std::uint32_t a, std::uint32_t b,
                                               std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

__device__ __forceinline__ void store_word(std::uint32_t to, int word) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ __forceinline__ int load_word(std::uint32_t from) {
  int word;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

__device__ __forceinline__ void store_floats(std::uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
__device__ __forceinline__ float2 load_two_floats(std::uint32_t from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
  return pair;
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace lockstep::cuda::hopper
