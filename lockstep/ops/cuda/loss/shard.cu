// Losses of logits that are divided by classes: a block has a row of a shard. The statistics of a
// shard are the first pass of cross entropy. With those of all shards, which a warp joins, there is
// only the pass that writes the gradient.
#include "lockstep/ops/cuda/loss/logit_row.cuh"
#include "lockstep/ops/cuda/loss/loss.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kShardThreads = 512;

// The classes of a shard among all of them.
struct Classes {
  int count;
  std::int64_t first;
  std::int64_t all;

  __device__ bool has(std::int32_t target) const { return target >= 0 && target < all; }
};

Classes classes_of(const Tensor& logits, std::int64_t first, std::int64_t all) {
  const std::int64_t count = logits.shape()[1];
  return {static_cast<int>(count), first, all > 0 ? all : count};
}

template <class T>
struct ShardStatistics {
  T* logits;
  const std::int32_t* targets;
  Classes classes;
  float* statistics;  // [rows][kLogitStatistics]
  Faults* faults;
};

template <class T>
__global__ void __launch_bounds__(kShardThreads) statistics_kernel(ShardStatistics<T> call) {
  __shared__ float partials[32];
  __shared__ double double_partials[32];
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x;
  const int classes = call.classes.count;
  float* to = call.statistics + row * ops::kLogitStatistics;
  const std::int32_t target = call.targets[row];
  if (!call.classes.has(target)) {
    if (thread != 0) return;
    if (target != ops::kNoTarget) atomicMin(&call.faults->target, fault(row, target));
    to[0] = to[1] = to[2] = 0;
    return;
  }
  const RowParts<T> parts(call.logits + row * classes, classes);
  const int single = parts.single(thread);
  const float alone = single >= 0 ? to_float(parts.row[single]) : 0.0f;
  const auto [most, total] =
      sum_of_row<T>(parts, single, alone, nullptr, 0, partials, double_partials);
  if (thread != 0) return;
  const std::int64_t own = target - call.classes.first;
  to[0] = most;
  to[1] = static_cast<float>(total);
  to[2] = own >= 0 && own < classes ? to_float(parts.row[own]) : 0.0f;
}

template <class T>
struct ShardLogits {
  T* logits;
  const std::int32_t* targets;
  Classes classes;
  const float* statistics;  // [shards][rows][kLogitStatistics]
  int shards;
  std::int64_t rows;
  float* losses;
  ScalarArg factor;
  Faults* faults;
  bool gradient;
  float softcap;  // of the logits; 0: none
};

// The sum of all shards, and the logit of the target.
struct JoinedRow {
  float most;
  double total;
  double of_target;
};

// For the lanes of a warp.
template <class T>
__device__ JoinedRow joined_row(const ShardLogits<T>& call, std::int64_t row, int lane) {
  const auto at = [&](int shard) {
    return call.statistics + (shard * call.rows + row) * ops::kLogitStatistics;
  };
  float most = -FLT_MAX;
  for (int shard = lane; shard < call.shards; shard += 32) most = fmaxf(most, at(shard)[0]);
  most = warp_max(most);
  double total = 0, of_target = 0;
  for (int shard = lane; shard < call.shards; shard += 32) {
    const float* one = at(shard);
    total += static_cast<double>(one[1]) * static_cast<double>(expf(one[0] - most));
    of_target += static_cast<double>(one[2]);
  }
  return {most, warp_sum(total), warp_sum(of_target)};
}

template <class T>
__global__ void __launch_bounds__(kShardThreads) shard_kernel(ShardLogits<T> call) {
  constexpr int N = kPerVector<T>;
  __shared__ JoinedRow joined;
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int64_t row = blockIdx.x;
  const int classes = call.classes.count;
  const RowParts<T> parts(call.logits + row * classes, classes);
  const std::int32_t target = call.targets[row];
  if (!call.classes.has(target)) {
    if (thread == 0) {
      if (target != ops::kNoTarget) atomicMin(&call.faults->target, fault(row, target));
      call.losses[row] = 0;
    }
    if (call.gradient) clear_row(parts);
    return;
  }
  if (thread < 32) {
    const JoinedRow all = joined_row(call, row, thread);
    if (thread == 0) {
      joined = all;
      call.losses[row] =
          static_cast<float>(log(all.total) - (all.of_target - static_cast<double>(all.most)));
    }
  }
  if (!call.gradient) return;
  __syncthreads();

  const float most = joined.most;
  const double total = joined.total;
  const double factor = call.factor.get();
  const auto scale = static_cast<float>(factor / total);
  // The hardware's exponential would show in p - 1.
  const double distance = joined.of_target - static_cast<double>(most);
  const auto at_target = static_cast<float>(factor * (exp(distance) / total - 1));
  const std::int64_t own = target - call.classes.first;  // may be of another shard
  const int single = parts.single(thread);
  if (single >= 0) {
    const float x = to_float(parts.row[single]);
    const float p = exponential<T>(x - most) * scale;
    parts.row[single] = from_float<T>(through_cap(single == own ? at_target : p, x, call.softcap));
  }
  for (int v = thread; v < parts.vectors; v += threads) {
    const int index = parts.index_of(v);
    const Floats<N> x = load_floats<N>(parts.row + index);
    Floats<N> gradient;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float p = exponential<T>(x[e] - most) * scale;
      gradient[e] = index + e == own ? at_target : p;
    }
    through_cap(gradient, x, call.softcap);
    store_floats(parts.row + index, gradient);
  }
}

template <class T>
int threads_of(int classes) {
  return threads_for(static_cast<std::size_t>(classes) / kPerVector<T>, 4, kShardThreads);
}

}  // namespace

void run(const Context& context, const ops::LogitStatistics& call) {
  if (call.logits.elements() == 0) return;
  with_compute_type(call.logits.dtype(), [&]<class T>(TypeTag<T>) {
    const ShardStatistics<T> arguments{
        .logits = data_of<T>(call.logits),
        .targets = data_of<const std::int32_t>(call.targets),
        .classes = classes_of(call.logits, call.first_class, call.all_classes),
        .statistics = data_of<float>(call.statistics),
        .faults = context.faults};
    statistics_kernel<T><<<static_cast<unsigned>(call.logits.shape()[0]),
                           threads_of<T>(arguments.classes.count), 0, context.stream>>>(arguments);
    check_launch("logit_statistics");
  });
}

void run_shard(const Context& context, const ops::CrossEntropy& call) {
  with_compute_type(call.logits.dtype(), [&]<class T>(TypeTag<T>) {
    const ShardLogits<T> arguments{
        .logits = data_of<T>(call.logits),
        .targets = data_of<const std::int32_t>(call.targets),
        .classes = classes_of(call.logits, call.first_class, call.all_classes),
        .statistics = data_of<const float>(call.statistics),
        .shards = static_cast<int>(call.statistics.shape()[0]),
        .rows = call.logits.shape()[0],
        .losses = data_of<float>(call.losses),
        .factor = scalar(call.factor),
        .faults = context.faults,
        .gradient = call.gradient,
        .softcap = static_cast<float>(call.softcap)};
    shard_kernel<T><<<static_cast<unsigned>(arguments.rows), threads_of<T>(arguments.classes.count),
                      0, context.stream>>>(arguments);
    check_launch("cross_entropy of a shard");
  });
}

}  // namespace lockstep::cuda
