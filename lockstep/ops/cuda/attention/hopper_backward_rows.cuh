// The kernels that process rows before and after the main kernel of attention's backward on Hopper.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "lockstep/ops/cuda/attention/hopper_backward_shape.h"
#include "lockstep/ops/cuda/device/overlap.cuh"

namespace lockstep::cuda::hopper {

template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  } else {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  }
}
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

struct PrepareArgs {
  BackwardShape shape;
  const void* out;
  const void* dout;
  const float* log_sum;
  float* log_sums;
  float* deltas;
  std::uint32_t* counters;
  std::int64_t counter_count;
};

// deltas = sums of dout * out over a head; log_sums to base 2, infinite where a query attends to no
// key or is padding, so that its probabilities become 0; counters = 0. A thread has 8 elements.
template <class T, int kHeadSize>
__global__ void __launch_bounds__(256) prepare_backward(PrepareArgs args) {
  constexpr int kLanes = kHeadSize / 8;
  const BackwardShape& shape = args.shape;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  start_next();
  wait_for_previous();
  if (thread < args.counter_count) args.counters[thread] = 0;
  // All lanes of a head are in one warp and have the same row.
  const std::int64_t head_row = thread / kLanes;
  const auto head = static_cast<int>(head_row % shape.heads);
  const std::int64_t padded_row = head_row / shape.heads;
  const auto query = static_cast<int>(padded_row % shape.padded_queries);
  const std::int64_t sequence = padded_row / shape.padded_queries;
  const bool exists = sequence < shape.batch && query < shape.queries;
  float sum = 0;
  if (exists) {
    const std::int64_t at =
        ((sequence * shape.queries + query) * shape.heads + head) * kLanes + thread % kLanes;
    const uint4 a = static_cast<const uint4*>(args.out)[at];
    const uint4 b = static_cast<const uint4*>(args.dout)[at];
    const auto add = [&](std::uint32_t x, std::uint32_t y) {
      const float2 p = unpack<T>(x), q = unpack<T>(y);
      sum = fmaf(p.x, q.x, sum);
      sum = fmaf(p.y, q.y, sum);
    };
    add(a.x, b.x);
    add(a.y, b.y);
    add(a.z, b.z);
    add(a.w, b.w);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  if (thread % kLanes != 0 || sequence >= shape.batch) return;
  const std::int64_t batch_head = sequence * shape.heads + head;
  const std::int64_t to = batch_head * shape.padded_queries + query;
  float log_sum = INFINITY;
  if (exists) {
    const float natural = args.log_sum[batch_head * shape.queries + query];
    if (natural != -INFINITY) log_sum = natural * 1.44269504088896340736f;
  }
  args.log_sums[to] = log_sum;
  args.deltas[to] = sum;
}

struct FinishArgs {
  BackwardShape shape;
  const float* sums;
  void* dq;  // the first head's first element
  std::int64_t row_elements;
  float scale;
};

// dq = scale * its sums, rounded. A block has 64 queries and 64 columns of a head, in the order of
// a product's registers, and reorders them into rows in shared memory.
template <class T, int kHeadSize>
__global__ void __launch_bounds__(128) finish_backward(FinishArgs args) {
  __shared__ alignas(128) std::byte tile[64 * 128];
  start_next();
  wait_for_previous();
  const BackwardShape& shape = args.shape;
  const auto part = static_cast<int>(blockIdx.x % 2);
  const std::int64_t block = blockIdx.x / 2;
  const auto query_block = static_cast<int>(block % shape.query_blocks);
  const std::int64_t batch_head = block / shape.query_blocks;
  const int first_query = query_block * shape.block_queries + (kHeadSize == 64 ? 64 * part : 0);
  if (first_query >= shape.queries) return;
  const bool was_summed = shape.last_key_block(query_block) >= 0;

  const int thread = threadIdx.x;
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const float4* const from =
      reinterpret_cast<const float4*>(args.sums) + static_cast<std::int64_t>(blockIdx.x) * 1024;
  float4 values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    values[i] = was_summed ? from[i * 128 + thread] : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int place = ((i ^ (row % 8)) * 16) + thread % 4 * 4;
    const float4 x = values[i];
    *reinterpret_cast<std::uint32_t*>(tile + row * 128 + place) =
        pack_pair<T>(x.x * args.scale, x.y * args.scale);
    *reinterpret_cast<std::uint32_t*>(tile + (row + 8) * 128 + place) =
        pack_pair<T>(x.z * args.scale, x.w * args.scale);
  }
  __syncthreads();

  const std::int64_t sequence = batch_head / shape.heads;
  const std::int64_t head = batch_head % shape.heads;
  T* const to = static_cast<T*>(args.dq) + sequence * shape.queries * args.row_elements +
                head * kHeadSize + (kHeadSize == 64 ? 0 : 64 * part);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = i * 16 + thread / 8;
    const int chunk = thread % 8;
    if (first_query + r < shape.queries) {
      *reinterpret_cast<uint4*>(to + (first_query + r) * args.row_elements + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile + r * 128 + ((chunk ^ (r % 8)) * 16));
    }
  }
}

}  // namespace lockstep::cuda::hopper
