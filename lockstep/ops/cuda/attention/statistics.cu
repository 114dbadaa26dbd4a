#include "lockstep/ops/cuda/attention/statistics.h"

#include "lockstep/ops/cuda/attention/call.cuh"
#include "lockstep/ops/cuda/attention/device.cuh"

namespace lockstep::cuda::attention {
namespace {

constexpr int kStatisticsThreads = 256;
constexpr int kHeadLanes = 8;  // of one head of one query
constexpr float kLog2E = 1.4426950408889634f;

template <class T>
__device__ float product_of_eight(const T* a, const T* b) {
  static_assert(sizeof(T) == 2);
  const uint4 x = *reinterpret_cast<const uint4*>(a);
  const uint4 y = *reinterpret_cast<const uint4*>(b);
  T xs[8], ys[8];
  memcpy(xs, &x, sizeof(x));
  memcpy(ys, &y, sizeof(y));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += to_float(xs[i]) * to_float(ys[i]);
  return sum;
}

// Eight lanes take one head of one query; neighbours take the next head, so that memory is read in
// order.
template <class T, bool kInEights>
__global__ void __launch_bounds__(kStatisticsThreads)
    statistics_kernel(Sizes sizes, const T* out, const T* dout, const float* log_sum, float* delta,
                      float* log2_sum) {
  const std::int64_t heads = static_cast<std::int64_t>(sizes.batch) * sizes.queries * sizes.heads;
  const std::int64_t thread =
      static_cast<std::int64_t>(blockIdx.x) * kStatisticsThreads + static_cast<int>(threadIdx.x);
  const std::int64_t at = thread / kHeadLanes;
  const int lane = static_cast<int>(thread % kHeadLanes);
  float sum = 0;
  if (at < heads) {
    const T* a = out + at * sizes.head_size;
    const T* b = dout + at * sizes.head_size;
    if constexpr (kInEights) {
      for (int i = 8 * lane; i < sizes.head_size; i += 8 * kHeadLanes) {
        sum += product_of_eight(a + i, b + i);
      }
    } else {
      for (int i = lane; i < sizes.head_size; i += kHeadLanes)
        sum += to_float(a[i]) * to_float(b[i]);
    }
  }
#pragma unroll
  for (int apart = kHeadLanes / 2; apart > 0; apart /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, apart);
  if (at >= heads || lane != 0) return;
  const int head = static_cast<int>(at % sizes.heads);
  const std::int64_t row = at / sizes.heads;
  const std::int64_t place = query_place(sizes, static_cast<int>(row / sizes.queries), head,
                                         static_cast<int>(row % sizes.queries));
  delta[place] = sum;
  const float natural = log_sum[place];
  log2_sum[place] = natural == -INFINITY ? INFINITY : natural * kLog2E;
}

template <class T, bool kInEights>
void launch_statistics(const Context& context, const ops::AttentionBackward& call, float* delta,
                       float* log2_sum) {
  const Sizes sizes = sizes_of(call.shape);
  const std::int64_t threads =
      call.shape.batch * call.shape.queries * call.shape.heads * kHeadLanes;
  launch<Sizes, const T*, const T*, const float*, float*, float*>(
      "attention_statistics", statistics_kernel<T, kInEights>,
      (threads + kStatisticsThreads - 1) / kStatisticsThreads, kStatisticsThreads, 0,
      context.stream, sizes, reinterpret_cast<const T*>(call.out.data()),
      reinterpret_cast<const T*>(call.dout.data()),
      reinterpret_cast<const float*>(call.log_sum.data()), delta, log2_sum);
}

std::int64_t statistics_count(const ops::AttentionShape& shape) {
  return shape.batch * shape.heads * shape.queries;
}

}  // namespace

std::size_t statistics_bytes(const ops::AttentionShape& shape) {
  return 2 * workspace_bytes(statistics_count(shape), sizeof(float));
}

Statistics prepare_statistics(const Context& context, const ops::AttentionBackward& call) {
  const std::size_t bytes = statistics_bytes(call.shape);
  std::byte* memory = workspace(context, bytes);
  auto* delta = reinterpret_cast<float*>(memory);
  auto* log2_sum = reinterpret_cast<float*>(memory + bytes / 2);
  with_compute_type(call.shape.dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      const std::int64_t size = call.shape.head_size;
      if (aligned({call.out, 0}, size, 8) && aligned({call.dout, 0}, size, 8)) {
        return launch_statistics<T, true>(context, call, delta, log2_sum);
      }
    }
    launch_statistics<T, false>(context, call, delta, log2_sum);
  });
  return {delta, log2_sum};
}

}  // namespace lockstep::cuda::attention
