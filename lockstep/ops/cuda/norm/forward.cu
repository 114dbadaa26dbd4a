// A row stays in the registers of the threads that share it, so memory is read once. A warp has a
// row of up to 1024 columns, a block a wider one. The threads load the row, add the branch and
// round, and then compute the mean, the variance around that mean, and the result. Every thread has
// at most kColumns columns, in vectors of 16 bytes.
//
// For wider rows, and rows that do not fit vectors, a block reads them again for every step,
// element by element.
#include <type_traits>

#include "lockstep/ops/cuda/device/dropout.cuh"
#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/norm/norm.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

enum class Branch { kNone, kAdded, kDropped };

template <class T>
struct Rows {
  const T* x;
  const T* branch;
  DropoutArg dropout;
  T* sum;
  const T* gain;
  const T* bias;  // may be null
  T* y;
  float* mean;  // null for an RMS norm, which takes 0 for it
  float* rstd;
  std::int64_t rows;
  int width;
  float epsilon;
  float above;  // what is added to the gain
};

__device__ __forceinline__ float rstd_of(float squares, int width, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + epsilon);
}

// x + dropout(branch) of N elements, rounded. `index` is that of the first.
template <Branch kBranch, class T, int N>
__device__ __forceinline__ Pack<T, N> sum_of(const Pack<T, N>& x, const Pack<T, N>& branch,
                                             const DropoutArg& dropout, std::size_t index) {
  Floats<N> sum = to_floats(x);
  const Floats<N> added = to_floats(branch);
  if constexpr (kBranch == Branch::kDropped) {
    const Floats<N> factors = DropoutKey(dropout).factors<N>(index);
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] = __fmaf_rn(added[e], factors[e], sum[e]);
  } else {
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] += added[e];
  }
  return rounded<T>(sum);
}

constexpr int kWarpBlock = 128;  // threads of a block whose warps have a row each

// kGroup threads have a row: 32, or a whole block.
template <class T, Branch kBranch, int kGroup, int kColumns>
__global__ void __launch_bounds__(kGroup == 32 ? kWarpBlock : kGroup) norm_kernel(Rows<T> call) {
  constexpr int N = kPerVector<T>;
  constexpr int kPacks = kColumns / N;
  constexpr bool kByWarp = kGroup == 32;
  __shared__ float partials[32];
  start_next();
  wait_for_previous();
  const auto total = [&](float x) {
    if constexpr (kByWarp) {
      return warp_sum(x);
    } else {
      return block_sum(x, partials);
    }
  };

  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const std::int64_t row = kByWarp ? std::int64_t{blockIdx.x} * (kWarpBlock / 32) + threadIdx.x / 32
                                   : std::int64_t{blockIdx.x};
  if (kByWarp && row >= call.rows) return;
  const int width = call.width;
  const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
  const auto column = [&](int pack) { return (pack * kGroup + thread) * N; };

  Pack<T, N> sum[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) < width) sum[p] = load_pack<N>(call.x + first + column(p));
  }
  // Parameters are loaded before the row's sums are known, so that nothing waits for them later.
  Pack<T, N> gains[kPacks], biases[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) >= width) continue;
    gains[p] = load_pack<N>(call.gain + column(p));
    if (call.bias != nullptr) biases[p] = load_pack<N>(call.bias + column(p));
  }
  if constexpr (kBranch != Branch::kNone) {
    Pack<T, N> branch[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) < width) branch[p] = load_pack<N>(call.branch + first + column(p));
    }
    DropoutArg dropout = call.dropout;
    if constexpr (kBranch == Branch::kDropped) dropout.step = {dropout.step.get(), nullptr};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) < width) {
        const std::size_t index = first + static_cast<std::size_t>(column(p));
        sum[p] = sum_of<kBranch>(sum[p], branch[p], dropout, index);
        store_pack<N>(call.sum + index, sum[p]);
      }
    }
  }

  float mean = 0;
  if (call.mean != nullptr) {
    float all = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) < width) {
        const Floats<N> x = to_floats(sum[p]);
#pragma unroll
        for (int e = 0; e < N; ++e) all += x[e];
      }
    }
    mean = total(all) / static_cast<float>(width);
  }
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) < width) {
      const Floats<N> x = to_floats(sum[p]);
#pragma unroll
      for (int e = 0; e < N; ++e) squares += (x[e] - mean) * (x[e] - mean);
    }
  }
  const float rstd = rstd_of(total(squares), width, call.epsilon);
  if (thread == 0) {
    if (call.mean != nullptr) call.mean[row] = mean;
    call.rstd[row] = rstd;
  }

#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) < width) {
      const Floats<N> x = to_floats(sum[p]);
      Floats<N> gain = to_floats(gains[p]);
#pragma unroll
      for (int e = 0; e < N; ++e) gain[e] += call.above;
      Floats<N> y;
      if (call.bias != nullptr) {
        const Floats<N> bias = to_floats(biases[p]);
#pragma unroll
        for (int e = 0; e < N; ++e) y[e] = (x[e] - mean) * rstd * gain[e] + bias[e];
      } else {
#pragma unroll
        for (int e = 0; e < N; ++e) y[e] = (x[e] - mean) * rstd * gain[e];
      }
      store_floats(call.y + first + column(p), y);
    }
  }
}

constexpr int kAnyThreads = 256;

// Any width and any alignment; one block per row. A thread reads again only what it wrote itself.
template <class T, Branch kBranch>
__global__ void __launch_bounds__(kAnyThreads) norm_any_kernel(Rows<T> call) {
  __shared__ float partials[32];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = blockIdx.x;
  const int width = call.width;
  const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
  const T* sum = kBranch == Branch::kNone ? call.x : call.sum;

  float all = 0;
  for (int i = thread; i < width; i += kAnyThreads) {
    Pack<T, 1> x = load_pack<1>(call.x + first + i);
    if constexpr (kBranch != Branch::kNone) {
      const std::size_t index = first + static_cast<std::size_t>(i);
      x = sum_of<kBranch>(x, load_pack<1>(call.branch + index), call.dropout, index);
      store_pack<1>(call.sum + index, x);
    }
    all += to_floats(x)[0];
  }
  float mean = 0;
  if (call.mean != nullptr) mean = block_sum(all, partials) / static_cast<float>(width);
  float squares = 0;
  for (int i = thread; i < width; i += kAnyThreads) {
    const float x = to_float(sum[first + i]) - mean;
    squares += x * x;
  }
  const float rstd = rstd_of(block_sum(squares, partials), width, call.epsilon);
  if (thread == 0) {
    if (call.mean != nullptr) call.mean[row] = mean;
    call.rstd[row] = rstd;
  }
  for (int i = thread; i < width; i += kAnyThreads) {
    const float bias = call.bias != nullptr ? to_float(call.bias[i]) : 0.0f;
    const float normed = (to_float(sum[first + i]) - mean) * rstd;
    call.y[first + i] = from_float<T>(normed * (to_float(call.gain[i]) + call.above) + bias);
  }
}

template <int kGroup, int kColumns, Branch kBranch, class T>
void launch(const Context& context, const Rows<T>& call) {
  constexpr int kRows = kGroup == 32 ? kWarpBlock / 32 : 1;
  constexpr int kThreads = kGroup == 32 ? kWarpBlock : kGroup;
  const auto blocks = static_cast<unsigned>(divide_up(static_cast<std::size_t>(call.rows), kRows));
  launch_overlapped<Rows<T>>(context, "norm", norm_kernel<T, kBranch, kGroup, kColumns>, blocks,
                             kThreads, 0, call);
}

template <Branch kBranch, class T>
void run_rows(const Context& context, const Rows<T>& call, bool vectors) {
  const int width = call.width;
  if (!vectors || width > 512 * 32) {
    norm_any_kernel<T, kBranch>
        <<<static_cast<unsigned>(call.rows), kAnyThreads, 0, context.stream>>>(call);
  } else if (width <= 32 * 8) {
    launch<32, 8, kBranch>(context, call);
  } else if (width <= 32 * 16) {
    launch<32, 16, kBranch>(context, call);
  } else if (width <= 32 * 24) {
    launch<32, 24, kBranch>(context, call);
  } else if (width <= 32 * 32) {
    launch<32, 32, kBranch>(context, call);
  } else if (width <= 256 * 8) {
    launch<256, 8, kBranch>(context, call);
  } else if (width <= 256 * 16) {
    launch<256, 16, kBranch>(context, call);
  } else if (width <= 256 * 32) {
    launch<256, 32, kBranch>(context, call);
  } else {
    launch<512, 32, kBranch>(context, call);
  }
  check_launch("norm");
}

}  // namespace

void run(const Context& context, const ops::Norm& call) {
  if (call.x.elements() == 0) return;
  with_compute_type(call.x.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr int N = kPerVector<T>;
    const bool branch = ops::is_given(call.branch);
    const bool drops = branch && call.dropout.probability > 0;
    const Rows<T> rows{.x = data_of<const T>(call.x),
                       .branch = data_of<const T>(call.branch),
                       .dropout = drops ? dropout_arg(call.dropout) : DropoutArg{},
                       .sum = data_of<T>(call.sum),
                       .gain = data_of<const T>(call.gain),
                       .bias = data_of<const T>(call.bias),
                       .y = data_of<T>(call.y),
                       .mean = data_of<float>(call.mean),
                       .rstd = data_of<float>(call.rstd),
                       .rows = call.x.shape()[0],
                       .width = static_cast<int>(call.x.shape()[1]),
                       .epsilon = call.epsilon,
                       .above = call.above_one ? 1.0f : 0.0f};
    const bool vectors = rows.width % N == 0 && all_allow_packs<T, N>(call.x, call.branch, call.sum,
                                                                      call.gain, call.bias, call.y);
    if (!branch) {
      run_rows<Branch::kNone>(context, rows, vectors);
    } else if (!drops) {
      run_rows<Branch::kAdded>(context, rows, vectors);
    } else {
      run_rows<Branch::kDropped>(context, rows, vectors);
    }
  });
}

}  // namespace lockstep::cuda
