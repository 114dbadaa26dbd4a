// Rows of tokens and of experts. Rows that are gathered or combined are divided among lanes
// (device/row_lanes.cuh); a product of two rows is the sum of a warp, or of a block if they are
// wide.
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/row_lanes.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/routing/routing.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

// Calls f with the elements of a pack as a type: a vector, where width and addresses allow it.
template <class T, class F, class... Tensors>
void with_pack(std::int64_t width, F&& f, const Tensors&... tensors) {
  constexpr int N = kPerVector<T>;
  if (width % N == 0 && all_allow_packs<T, N>(tensors...)) {
    f(std::integral_constant<int, N>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

template <class T, int N>
__global__ void __launch_bounds__(RowLanes::kThreads)
    gather_kernel(RowLanes shape, const std::int32_t* pairs, const T* x, T* y, int width,
                  std::int64_t limit, int chosen, Faults* faults) {
  const std::int64_t row = shape.row();
  if (row >= shape.rows) return;
  const std::int32_t pair = pairs[row];
  const bool inside = pair >= 0 && pair < limit;
  if (!inside && shape.lane() == 0) atomicMin(&faults->token, fault(row, pair));
  const T* from = x + static_cast<std::int64_t>(inside ? pair / chosen : 0) * width;
  T* to = y + row * width;
  for (int column = shape.lane() * N; column < width; column += shape.lanes * N) {
    if (inside) {
      store_pack<N>(to + column, load_pack<N>(from + column));
    } else {
      store_floats(to + column, Floats<N>{});
    }
  }
}

template <class T>
struct Combination {
  const std::int32_t* rows;
  const float* weights;  // may be null: all are 1
  const T* routed;
  const T* residual;  // may be null
  T* y;
  std::int64_t limit;  // routed rows
  int chosen;
  int width;
  Faults* faults;
};

template <class T, int N>
__global__ void __launch_bounds__(RowLanes::kThreads)
    combine_kernel(RowLanes shape, Combination<T> call) {
  const std::int64_t token = shape.row();
  if (token >= shape.rows) return;
  const std::int32_t* rows = call.rows + token * call.chosen;
  for (int column = shape.lane() * N; column < call.width; column += shape.lanes * N) {
    const std::int64_t at = token * call.width + column;
    Floats<N> sum = {};
    if (call.residual != nullptr) sum = load_floats<N>(call.residual + at);
    for (int j = 0; j < call.chosen; ++j) {
      const std::int32_t row = rows[j];
      if (row < 0 || row >= call.limit) {
        if (column == 0) atomicMin(&call.faults->token, fault(token * call.chosen + j, row));
        continue;
      }
      const float weight = call.weights != nullptr ? call.weights[row] : 1.0f;
      const Floats<N> one =
          load_floats<N>(call.routed + static_cast<std::int64_t>(row) * call.width + column);
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] = fmaf(weight, one[e], sum[e]);
    }
    store_floats(call.y + at, sum);
  }
}

constexpr int kWeightThreads = 256;

// A row belongs to a warp, or to a block.
template <class T, int N, bool kByWarp>
__global__ void __launch_bounds__(kWeightThreads)
    weight_kernel(const float* weights, T* x, T* dx, float* dweights, std::int64_t rows,
                  int width) {
  __shared__ float partials[32];
  constexpr int kGroup = kByWarp ? 32 : kWeightThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const std::int64_t row =
      std::int64_t{blockIdx.x} * (kWeightThreads / kGroup) + static_cast<int>(threadIdx.x) / kGroup;
  if (row >= rows) return;  // all of the group
  const float weight = weights[row];
  float sum = 0;
  for (int column = thread * N; column < width; column += kGroup * N) {
    const std::int64_t at = row * width + column;
    Floats<N> a = load_floats<N>(x + at), b = load_floats<N>(dx + at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      sum = fmaf(a[e], b[e], sum);
      a[e] *= weight;
      b[e] *= weight;
    }
    store_floats(x + at, a);
    store_floats(dx + at, b);
  }
  if constexpr (kByWarp) {
    sum = warp_sum(sum);
  } else {
    sum = block_sum(sum, partials);
  }
  if (thread == 0) dweights[row] = sum;
}

constexpr int kCountThreads = 256;

__global__ void __launch_bounds__(kCountThreads)
    add_counts_kernel(const std::int32_t* counts, std::int32_t* sums, int count) {
  const int i = static_cast<int>(blockIdx.x) * kCountThreads + static_cast<int>(threadIdx.x);
  if (i < count) sums[i] += counts[i];
}

__global__ void __launch_bounds__(1024)
    count_targets_kernel(const std::int32_t* targets, std::int64_t count, std::int32_t* result) {
  __shared__ int partials[32];
  int given = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += 1024) {
    if (targets[i] != ops::kNoTarget) ++given;
  }
  given = block_sum(given, partials);
  if (threadIdx.x == 0) *result = given;
}

__global__ void __launch_bounds__(kCountThreads)
    balance_kernel(const std::int32_t* counts, int experts, int chosen, double coefficient,
                   ScalarArg factor, float* balance) {
  __shared__ double partials[32];
  const auto thread = static_cast<int>(threadIdx.x);
  double pairs = 0;
  for (int e = thread; e < experts; e += kCountThreads) pairs += counts[e];
  const double tokens = block_sum(pairs, partials) / chosen;
  const double each = coefficient * counts[experts] * factor.get() / fmax(1.0, tokens * tokens);
  for (int e = thread; e < experts; e += kCountThreads) {
    balance[e] = static_cast<float>(each * counts[e]);
  }
}

}  // namespace

void run(const Context& context, const ops::GatherTokens& call) {
  const std::int64_t rows = call.y.shape()[0], width = call.y.shape()[1];
  if (call.y.elements() == 0) return;
  with_compute_type(call.x.dtype(), [&]<class T>(TypeTag<T>) {
    with_pack<T>(
        width,
        [&]<int N>(std::integral_constant<int, N>) {
          const RowLanes shape(rows, width / N);
          gather_kernel<T, N><<<shape.blocks(), RowLanes::kThreads, 0, context.stream>>>(
              shape, data_of<const std::int32_t>(call.pairs), data_of<const T>(call.x),
              data_of<T>(call.y), static_cast<int>(width),
              call.x.shape()[0] * call.experts_per_token, static_cast<int>(call.experts_per_token),
              context.faults);
          check_launch("gather_tokens");
        },
        call.x, call.y);
  });
}

void run(const Context& context, const ops::CombineTokens& call) {
  const std::int64_t tokens = call.y.shape()[0], width = call.y.shape()[1];
  if (call.y.elements() == 0) return;
  with_compute_type(call.y.dtype(), [&]<class T>(TypeTag<T>) {
    const Combination<T> arguments{.rows = data_of<const std::int32_t>(call.rows),
                                   .weights = data_of<const float>(call.weights),
                                   .routed = data_of<const T>(call.routed),
                                   .residual = data_of<const T>(call.residual),
                                   .y = data_of<T>(call.y),
                                   .limit = call.routed.shape()[0],
                                   .chosen = static_cast<int>(call.rows.shape()[1]),
                                   .width = static_cast<int>(width),
                                   .faults = context.faults};
    with_pack<T>(
        width,
        [&]<int N>(std::integral_constant<int, N>) {
          const RowLanes shape(tokens, width / N);
          combine_kernel<T, N>
              <<<shape.blocks(), RowLanes::kThreads, 0, context.stream>>>(shape, arguments);
          check_launch("combine_tokens");
        },
        call.routed, call.residual, call.y);
  });
}

void run(const Context& context, const ops::WeightRows& call) {
  const std::int64_t rows = call.x.shape()[0], width = call.x.shape()[1];
  if (rows == 0) return;
  with_compute_type(call.x.dtype(), [&]<class T>(TypeTag<T>) {
    with_pack<T>(
        width,
        [&]<int N>(std::integral_constant<int, N>) {
          const auto launch = [&](auto* kernel, std::int64_t rows_each) {
            const auto blocks = static_cast<unsigned>((rows + rows_each - 1) / rows_each);
            kernel<<<blocks, kWeightThreads, 0, context.stream>>>(
                data_of<const float>(call.weights), data_of<T>(call.x), data_of<T>(call.dx),
                data_of<float>(call.dweights), rows, static_cast<int>(width));
            check_launch("weight_rows");
          };
          if (width / N <= 4 * 32) {
            launch(weight_kernel<T, N, true>, kWeightThreads / 32);
          } else {
            launch(weight_kernel<T, N, false>, 1);
          }
        },
        call.x, call.dx);
  });
}

void run(const Context& context, const ops::AddCounts& call) {
  const auto count = static_cast<int>(call.counts.elements());
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kCountThreads - 1) / kCountThreads);
  add_counts_kernel<<<blocks, kCountThreads, 0, context.stream>>>(
      data_of<const std::int32_t>(call.counts), data_of<std::int32_t>(call.sums), count);
  check_launch("add_counts");
}

void run(const Context& context, const ops::CountTargets& call) {
  count_targets_kernel<<<1, 1024, 0, context.stream>>>(
      data_of<const std::int32_t>(call.targets), static_cast<std::int64_t>(call.targets.elements()),
      data_of<std::int32_t>(call.count));
  check_launch("count_targets");
}

void run(const Context& context, const ops::BalanceExperts& call) {
  balance_kernel<<<1, kCountThreads, 0, context.stream>>>(
      data_of<const std::int32_t>(call.counts), static_cast<int>(call.balance.elements()),
      static_cast<int>(call.experts_per_token), call.coefficient, scalar(call.factor),
      data_of<float>(call.balance));
  check_launch("balance_experts");
}

}  // namespace lockstep::cuda
