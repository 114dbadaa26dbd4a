// A block has a query. Its threads first compute how much of either side each head takes, one head
// a thread, which alone reads and writes the log-sum-exp of that head. Then they join the columns.
#include "lockstep/ops/cuda/attention/merge.h"

#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kMergeThreads = 256;  // and heads at a time

template <class T>
struct Merge {
  const T* more;
  const float* more_log_sum;
  float* out;
  float* log_sum;
  std::int64_t queries;
  int heads;
  int head_size;
};

// What the sides are multiplied by; a side with 0 is not read, as it may not be a number.
struct Shares {
  float before;
  float more;
};

// Writes the joined log-sum-exp of a head.
__device__ __forceinline__ Shares join(float* log_sum, float more_log_sum) {
  const float before = *log_sum;
  const float most = fmaxf(before, more_log_sum);
  if (most == -INFINITY) return {1, 0};
  const float of_before = expf(before - most), of_more = expf(more_log_sum - most);
  const float sum = of_before + of_more;
  *log_sum = most + logf(sum);
  return {of_before / sum, of_more / sum};
}

template <class T, int N>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(Merge<T> call) {
  __shared__ Shares shares[kMergeThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t query = blockIdx.x;
  const std::int64_t row = query * call.heads * call.head_size;
  const int packs_per_head = call.head_size / N;
  for (int first = 0; first < call.heads; first += kMergeThreads) {
    const int heads = min(kMergeThreads, call.heads - first);
    __syncthreads();
    if (thread < heads) {
      const std::int64_t place = (first + thread) * call.queries + query;
      shares[thread] = join(call.log_sum + place, call.more_log_sum[place]);
    }
    __syncthreads();
    const std::int64_t begin = row + static_cast<std::int64_t>(first) * call.head_size;
    for (int pack = thread; pack < heads * packs_per_head; pack += kMergeThreads) {
      const Shares share = shares[pack / packs_per_head];
      if (share.more == 0) continue;
      const std::int64_t at = begin + static_cast<std::int64_t>(pack) * N;
      const Floats<N> added = load_floats<N>(call.more + at);
      Floats<N> sum = {};
      if (share.before > 0) {
        const Floats<N> before = load_floats<N>(call.out + at);
#pragma unroll
        for (int e = 0; e < N; ++e) sum[e] = share.before * before[e];
      }
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] = fmaf(share.more, added[e], sum[e]);
      store_floats(call.out + at, sum);
    }
  }
}

}  // namespace

void run(const Context& context, const ops::MergeAttention& call) {
  if (call.more.elements() == 0) return;
  const std::int64_t queries = call.more.shape()[0];
  const std::int64_t head_size = call.more.shape()[1] / call.heads;
  with_compute_type(call.more.dtype(), [&]<class T>(TypeTag<T>) {
    const Merge<T> arguments{.more = data_of<const T>(call.more),
                             .more_log_sum = data_of<const float>(call.more_log_sum),
                             .out = data_of<float>(call.out),
                             .log_sum = data_of<float>(call.log_sum),
                             .queries = queries,
                             .heads = static_cast<int>(call.heads),
                             .head_size = static_cast<int>(head_size)};
    constexpr int N = 4;
    const auto launch = [&](auto* kernel) {
      kernel<<<static_cast<unsigned>(queries), kMergeThreads, 0, context.stream>>>(arguments);
      check_launch("merge_attention");
    };
    if (head_size % N == 0 && allows_packs<T, N>(call.more) && allows_packs<float, N>(call.out)) {
      launch(merge_kernel<T, N>);
    } else {
      launch(merge_kernel<T, 1>);
    }
  });
}

}  // namespace lockstep::cuda
