// Cross entropy: a block has a row of logits. In one pass every thread finds the largest of its
// logits so far and the sum of exponentials relative to it, which it rescales whenever a larger one
// comes. It stores the logits in shared memory as far as they fit. After the threads have reduced
// the largest logit and the sum, a second pass writes the gradient and reads again only what did
// not fit. Rows may begin at any address, so the elements before the first vector of 16 bytes and
// after the last one are processed one by one.
//
// Squared error: a block has a row, in one pass.
#include "lockstep/ops/cuda/loss/loss.h"

#include <algorithm>

#include "lockstep/ops/cuda/loss/logit_row.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

template <class T>
struct Logits {
  T* logits;
  const std::int32_t* targets;
  float* losses;
  ScalarArg factor;
  Faults* faults;
  int classes;
  int kept;  // vectors that shared memory holds
  bool gradient;
  float softcap;  // of the logits; 0: none
};

template <class T>
__global__ void __launch_bounds__(1024) cross_entropy_kernel(Logits<T> call) {
  constexpr int N = kPerVector<T>;
  extern __shared__ uint4 kept_memory[];
  auto* kept = reinterpret_cast<Pack<T, N>*>(kept_memory);
  __shared__ float partials[32];
  __shared__ double double_partials[32];
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int64_t row = blockIdx.x;
  const RowParts<T> parts(call.logits + static_cast<std::size_t>(row) * std::size_t(call.classes),
                          call.classes);

  const std::int32_t target = call.targets[row];
  if (target < 0 || target >= call.classes) {
    if (thread == 0) {
      if (target != ops::kNoTarget) atomicMin(&call.faults->target, fault(row, target));
      call.losses[row] = 0;
    }
    if (call.gradient) clear_row(parts);
    return;
  }
  const float of_target = to_float(parts.row[target]);

  const int single = parts.single(thread);
  const float alone = single >= 0 ? to_float(parts.row[single]) : 0.0f;
  const auto [most, total] =
      sum_of_row(parts, single, alone, kept, call.kept, partials, double_partials);
  const double distance = static_cast<double>(of_target) - static_cast<double>(most);
  if (thread == 0) call.losses[row] = static_cast<float>(log(total) - distance);
  if (!call.gradient) return;

  const double factor = call.factor.get();
  const auto scale = static_cast<float>(factor / total);
  // The hardware's exponential would show in p - 1.
  const auto at_target = static_cast<float>(factor * (exp(distance) / total - 1));
  if (single >= 0) {
    const float p = exponential<T>(alone - most) * scale;
    parts.row[single] =
        from_float<T>(through_cap(single == target ? at_target : p, alone, call.softcap));
  }
  for (int v = thread; v < parts.vectors; v += threads) {
    const int index = parts.index_of(v);
    const Floats<N> x = to_floats(v < call.kept ? kept[v] : load_pack<N>(parts.row + index));
    Floats<N> gradient;
#pragma unroll
    for (int e = 0; e < N; ++e) gradient[e] = exponential<T>(x[e] - most) * scale;
    if (static_cast<unsigned>(target - index) < static_cast<unsigned>(N)) {
#pragma unroll
      for (int e = 0; e < N; ++e) {
        if (index + e == target) gradient[e] = at_target;
      }
    }
    through_cap(gradient, x, call.softcap);
    store_floats(parts.row + index, gradient);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(256)
    squared_error_kernel(const T* x, const T* target, float* losses, T* dx, ScalarArg factor,
                         int width) {
  __shared__ float partials[32];
  const std::size_t first = std::size_t{blockIdx.x} * static_cast<std::size_t>(width);
  const float twice = 2 * static_cast<float>(factor.get());
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) * N; i < width;
       i += static_cast<int>(blockDim.x) * N) {
    const Floats<N> a = load_floats<N>(x + first + i), b = load_floats<N>(target + first + i);
    Floats<N> gradient;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float difference = a[e] - b[e];
      sum += difference * difference;
      gradient[e] = twice * difference;
    }
    if (dx != nullptr) store_floats(dx + first + i, gradient);
  }
  sum = block_sum(sum, partials);
  if (threadIdx.x == 0) losses[blockIdx.x] = sum;
}

}  // namespace

void run(const Context& context, const ops::CrossEntropy& call) {
  if (call.logits.elements() == 0) return;
  if (call.all_classes > 0) return run_shard(context, call);
  with_compute_type(call.logits.dtype(), [&]<class T>(TypeTag<T>) {
    const auto classes = static_cast<std::size_t>(call.logits.shape()[1]);
    const std::size_t vectors = classes / kPerVector<T>;
    // The kernel's other shared memory, rounded up.
    constexpr std::size_t kOther = 1024;
    const std::size_t available = std::max(context.shared_memory, 2 * kOther) - kOther;
    const std::size_t kept = call.gradient ? std::min(vectors, available / 16) : 0;
    // Two blocks per multiprocessor, so that one computes while the other loads, or one large
    // block.
    const bool alone = kept * 16 > available / 2 - kOther;
    const int threads = threads_for(vectors, 4, alone ? 1024 : 512);
    if (kept * 16 > 48 * 1024 - kOther) {
      check(
          cudaFuncSetAttribute(cross_entropy_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kept * 16)),
          "cross_entropy: shared memory");
    }
    const Logits<T> logits{.logits = data_of<T>(call.logits),
                           .targets = data_of<const std::int32_t>(call.targets),
                           .losses = data_of<float>(call.losses),
                           .factor = scalar(call.factor),
                           .faults = context.faults,
                           .classes = static_cast<int>(classes),
                           .kept = static_cast<int>(kept),
                           .gradient = call.gradient,
                           .softcap = static_cast<float>(call.softcap)};
    cross_entropy_kernel<T>
        <<<static_cast<unsigned>(call.logits.shape()[0]), threads, kept * 16, context.stream>>>(
            logits);
    check_launch("cross_entropy");
  });
}

void run(const Context& context, const ops::SquaredError& call) {
  const auto rows = static_cast<std::size_t>(call.x.shape()[0]);
  if (rows == 0) return;
  with_compute_type(call.x.dtype(), [&]<class T>(TypeTag<T>) {
    const auto width = static_cast<std::size_t>(call.x.shape()[1]);
    const auto launch = [&]<int N>(std::integral_constant<int, N>) {
      squared_error_kernel<T, N><<<static_cast<unsigned>(rows),
                                   threads_for(divide_up(width, N), 2, 256), 0, context.stream>>>(
          data_of<const T>(call.x), data_of<const T>(call.target), data_of<float>(call.losses),
          data_of<T>(call.dx), scalar(call.factor), static_cast<int>(width));
      check_launch("squared_error");
    };
    constexpr int N = kPerVector<T>;
    if (width % N == 0 && all_allow_packs<T, N>(call.x, call.target, call.dx)) {
      launch(std::integral_constant<int, N>{});
    } else {
      launch(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace lockstep::cuda
