#include "lockstep/ops/cuda/attention/relative_bias.h"

#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda::relative_bias {
namespace {

constexpr int kWriters = 128;  // threads of forward
constexpr int kReaders = 32;   // and of backward, a warp

// A block has a bucket of a head.
template <class T>
__global__ void __launch_bounds__(kWriters)
    bias_kernel(BucketRanges ranges, const T* table, std::int64_t columns, float* bias, int buckets,
                int distances) {
  const auto bucket = static_cast<int>(blockIdx.x) % buckets;
  const auto head = static_cast<int>(blockIdx.x) / buckets;
  const float value = to_float(table[bucket * columns + head]);
  float* const of_head = bias + static_cast<std::int64_t>(head) * distances;
  for (int i = ranges.begin[bucket] + static_cast<int>(threadIdx.x); i < ranges.end[bucket];
       i += kWriters) {
    of_head[i] = value;
  }
}

__device__ __forceinline__ void add(float& to, double sum) {
  to = static_cast<float>(static_cast<double>(to) + sum);
}
__device__ __forceinline__ void add(__nv_bfloat16& to, double sum) {
  to = __double2bfloat16(static_cast<double>(__bfloat162float(to)) + sum);
}
__device__ __forceinline__ void add(__half& to, double sum) {
  to = __double2half(static_cast<double>(__half2float(to)) + sum);
}

// A warp has a bucket of a head.
template <class T>
__global__ void __launch_bounds__(kReaders)
    dtable_kernel(BucketRanges ranges, const float* dbias, T* dtable, std::int64_t columns,
                  int buckets, int distances) {
  const auto bucket = static_cast<int>(blockIdx.x) % buckets;
  const auto head = static_cast<int>(blockIdx.x) / buckets;
  const float* const of_head = dbias + static_cast<std::int64_t>(head) * distances;
  double sum = 0;
  for (int i = ranges.begin[bucket] + static_cast<int>(threadIdx.x); i < ranges.end[bucket];
       i += kReaders) {
    sum += static_cast<double>(of_head[i]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) add(dtable[bucket * columns + head], sum);
}

}  // namespace

void launch_bias(const Context& context, const ops::RelativeBias& call,
                 const BucketRanges& ranges) {
  const std::int64_t blocks = call.buckets.count * call.bias.shape()[0];
  if (blocks == 0) return;
  with_compute_type(call.table.dtype(), [&]<class T>(TypeTag<T>) {
    bias_kernel<T><<<static_cast<unsigned>(blocks), kWriters, 0, context.stream>>>(
        ranges, data_of<const T>(call.table) + call.first_head, call.table.shape()[1],
        data_of<float>(call.bias), static_cast<int>(call.buckets.count),
        static_cast<int>(call.buckets.distances()));
    check_launch("relative_bias");
  });
}

void launch_dtable(const Context& context, const ops::RelativeBiasBackward& call,
                   const BucketRanges& ranges) {
  const std::int64_t blocks = call.buckets.count * call.dbias.shape()[0];
  if (blocks == 0) return;
  with_compute_type(call.dtable.dtype(), [&]<class T>(TypeTag<T>) {
    dtable_kernel<T><<<static_cast<unsigned>(blocks), kReaders, 0, context.stream>>>(
        ranges, data_of<const float>(call.dbias), data_of<T>(call.dtable) + call.first_head,
        call.dtable.shape()[1], static_cast<int>(call.buckets.count),
        static_cast<int>(call.buckets.distances()));
    check_launch("relative_bias_backward");
  });
}

}  // namespace lockstep::cuda::relative_bias
