// The kernels that process the rows of a norm's backward (norm/backward.cu describes them).
//
// With n = (sum - mean) rstd and g = dy gain, the gradient of the sum is rstd (g -
// average(g) - n average(g n)); an RMS norm lacks the first average.
#pragma once

#include "lockstep/ops/cuda/device/dropout.cuh"
#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"

namespace lockstep::cuda::norm_backward {

// kDrops: whether dbranch goes through dropout.
template <class T, bool kDrops>
struct Rows {
  const T* dy;
  const T* sum;
  const T* gain;
  const float* mean;  // null for an RMS norm
  const float* rstd;
  const T* dresidual;  // may be null
  T* dsum;             // may be dy or dresidual
  T* dbranch;          // may be null
  DropoutArg dropout;
  float* partials;
  bool biased;  // whether dbias is wanted
  std::int64_t rows;
  int width;
  float above;  // what is added to the gain
};

// N elements of the gain from column `at` on.
template <int N, class T, bool kDrops>
__device__ __forceinline__ Floats<N> load_gain(const Rows<T, kDrops>& call, int at) {
  Floats<N> gain = load_floats<N>(call.gain + at);
#pragma unroll
  for (int e = 0; e < N; ++e) gain[e] += call.above;
  return gain;
}

struct Averages {
  float g;  // 0 for an RMS norm
  float gn;
};

// The gradient of N elements of the sum, from dy, the sum and the gain of these.
template <int N>
__device__ __forceinline__ Floats<N> through_norm(const Floats<N>& dy, const Floats<N>& sum,
                                                  const Floats<N>& gain, float mean, float rstd,
                                                  const Averages& average) {
  Floats<N> result;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const float n = (sum[e] - mean) * rstd;
    result[e] = (dy[e] * gain[e] - average.g - n * average.gn) * rstd;
  }
  return result;
}

// Rounds and stores dsum, and computes dbranch from the rounded value. `index` is that of the first
// element.
template <class T, bool kDrops, int N>
__device__ __forceinline__ void store_gradients(const Rows<T, kDrops>& call,
                                                const DropoutArg& dropout, std::size_t index,
                                                const Floats<N>& gradient) {
  const Pack<T, N> dsum = rounded<T>(gradient);
  store_pack<N>(call.dsum + index, dsum);
  if constexpr (kDrops) {
    Floats<N> dropped = to_floats(dsum);
    const Floats<N> factors = DropoutKey(dropout).factors<N>(index);
#pragma unroll
    for (int e = 0; e < N; ++e) dropped[e] *= factors[e];
    store_floats(call.dbranch + index, dropped);
  } else if (call.dbranch != nullptr) {
    store_pack<N>(call.dbranch + index, dsum);
  }
}

// Hides the pack's origin from the compiler. Values that are needed again after a reduction are
// then unpacked again, instead of staying unpacked in twice as many registers.
template <class T, int N>
__device__ __forceinline__ void renew(Pack<T, N>& pack) {
  auto* words = reinterpret_cast<std::uint32_t*>(&pack);
#pragma unroll
  for (int i = 0; i < static_cast<int>(N * sizeof(T) / 4); ++i) asm volatile("" : "+r"(words[i]));
}

// The sums of a thread over its rows, and its part of the work on one row. kGroup threads share a
// row: 32, or the whole block.
template <class T, bool kDrops, int kGroup, int kColumns>
struct Share {
  static constexpr int N = kPerVector<T>;
  static constexpr int kPacks = kColumns / N;
  // Whether the residual is loaded with the rest; with few registers it is loaded later.
  static constexpr bool kEarly = kColumns * sizeof(T) <= 48;

  // The loaded part of a row.
  struct Row {
    Pack<T, N> dys[kPacks], sums[kPacks], residuals[kPacks];
    float mean, rstd;
  };

  float dgain[kColumns] = {};
  float dbias[kColumns] = {};

  static __device__ __forceinline__ int column(int thread, int pack) {
    return (pack * kGroup + thread) * N;
  }

  static __device__ __forceinline__ Row load(const Rows<T, kDrops>& call, std::int64_t row,
                                             int thread) {
    const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(call.width);
    Row loaded;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int at = column(thread, p);
      if (at < call.width) {
        loaded.dys[p] = load_pack<N>(call.dy + first + at);
        loaded.sums[p] = load_pack<N>(call.sum + first + at);
      }
    }
    if (kEarly && call.dresidual != nullptr) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int at = column(thread, p);
        if (at < call.width) loaded.residuals[p] = load_pack<N>(call.dresidual + first + at);
      }
    }
    loaded.mean = call.mean != nullptr ? call.mean[row] : 0.0f;
    loaded.rstd = call.rstd[row];
    return loaded;
  }

  // `total` sums two numbers over the group.
  template <class Total>
  __device__ __forceinline__ void add(const Rows<T, kDrops>& call, const DropoutArg& dropout,
                                      std::int64_t row, Row loaded, int thread, Total&& total) {
    const int width = call.width;
    const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
    const float mean = loaded.mean, rstd = loaded.rstd;
    float2 sums_of_g = {0, 0};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int at = column(thread, p);
      if (at < width) {
        const Floats<N> dy = to_floats(loaded.dys[p]), sum = to_floats(loaded.sums[p]);
        const Floats<N> gain = load_gain<N>(call, at);
#pragma unroll
        for (int e = 0; e < N; ++e) {
          const float n = (sum[e] - mean) * rstd;
          const float g = dy[e] * gain[e];
          sums_of_g.x += g;
          sums_of_g.y += g * n;
          dgain[p * N + e] += dy[e] * n;
          dbias[p * N + e] += dy[e];
        }
      }
    }
    sums_of_g = total(sums_of_g);
    const auto columns = static_cast<float>(width);
    const Averages average{call.mean != nullptr ? sums_of_g.x / columns : 0.0f,
                           sums_of_g.y / columns};
    asm volatile("" ::: "memory");  // gains are loaded again, too
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int at = column(thread, p);
      if (at < width) {
        renew(loaded.dys[p]);
        renew(loaded.sums[p]);
        Floats<N> gradient = through_norm(to_floats(loaded.dys[p]), to_floats(loaded.sums[p]),
                                          load_gain<N>(call, at), mean, rstd, average);
        if (call.dresidual != nullptr) {
          if (!kEarly) loaded.residuals[p] = load_pack<N>(call.dresidual + first + at);
          const Floats<N> residual = to_floats(loaded.residuals[p]);
#pragma unroll
          for (int e = 0; e < N; ++e) gradient[e] += residual[e];
        }
        store_gradients(call, dropout, first + static_cast<std::size_t>(at), gradient);
      }
    }
  }
};

template <class T, bool kDrops>
__device__ __forceinline__ DropoutArg ready_dropout(const Rows<T, kDrops>& call) {
  DropoutArg dropout = call.dropout;
  if (kDrops) dropout.step = {dropout.step.get(), nullptr};
  return dropout;
}

// The address of this block's partial sums of dgain (0) or dbias (1).
template <class T, bool kDrops>
__device__ __forceinline__ float* partials_of(const Rows<T, kDrops>& call, int which) {
  const std::size_t row = std::size_t{gridDim.x} * static_cast<std::size_t>(which) + blockIdx.x;
  return call.partials + row * static_cast<std::size_t>(call.width);
}

// The launch bounds of a kernel with kColumns columns per thread, by the registers of a
// multiprocessor.
template <class T, int kColumns>
struct WarpBlocks {
  static constexpr bool kLarge = kColumns * sizeof(T) >= 64;
  static constexpr int kWarps = kLarge ? 4 : 8;
  static constexpr int kEach = kLarge && kColumns * sizeof(T) < 128 ? 3 : 2;  // blocks
};

template <class T, bool kDrops, int kColumns>
__global__ void __launch_bounds__(WarpBlocks<T, kColumns>::kWarps * 32,
                                  WarpBlocks<T, kColumns>::kEach)
    by_warps_kernel(Rows<T, kDrops> call) {
  using Own = Share<T, kDrops, 32, kColumns>;
  constexpr int N = kPerVector<T>;
  constexpr int kWarps = WarpBlocks<T, kColumns>::kWarps;
  __shared__ float parts[kWarps][32 * kColumns];
  start_next();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const DropoutArg dropout = ready_dropout(call);
  Own share;
  const std::int64_t step = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp; row < call.rows; row += step) {
    share.add(call, dropout, row, Own::load(call, row, lane), lane,
              [](float2 x) { return make_float2(warp_sum(x.x), warp_sum(x.y)); });
  }
  for (int which = 0; which < (call.biased ? 2 : 1); ++which) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      parts[warp][Own::column(lane, i / N) + i % N] = which == 0 ? share.dgain[i] : share.dbias[i];
    }
    __syncthreads();
    float* to = partials_of(call, which);
    for (int i = static_cast<int>(threadIdx.x); i < call.width; i += kWarps * 32) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += parts[w][i];
      to[i] = sum;
    }
    __syncthreads();
  }
}

// Where registers allow it, the next row is loaded before work on the current one begins.
template <class T, bool kDrops, int kThreads, int kColumns>
__global__ void __launch_bounds__(kThreads, kColumns == 8 ? 1024 / kThreads : 1)
    by_blocks_kernel(Rows<T, kDrops> call) {
  using Own = Share<T, kDrops, kThreads, kColumns>;
  constexpr int N = kPerVector<T>;
  constexpr bool kAhead = kColumns * sizeof(T) <= 16;
  // Two alternating buffers, so that one barrier per row is enough.
  __shared__ float2 warp_sums[2][kThreads / 32];
  start_next();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const DropoutArg dropout = ready_dropout(call);
  Own share;
  int buffer = 0;
  const auto total = [&](float2 x) {
    x = make_float2(warp_sum(x.x), warp_sum(x.y));
    if (thread % 32 == 0) warp_sums[buffer][thread / 32] = x;
    __syncthreads();
    float2 sum = {0, 0};
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      sum.x += warp_sums[buffer][w].x;
      sum.y += warp_sums[buffer][w].y;
    }
    return sum;
  };
  typename Own::Row next;
  if (kAhead && blockIdx.x < call.rows) next = Own::load(call, blockIdx.x, thread);
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x, buffer ^= 1) {
    const typename Own::Row loaded = kAhead ? next : Own::load(call, row, thread);
    if (kAhead && row + gridDim.x < call.rows) {
      next = Own::load(call, row + gridDim.x, thread);
    }
    share.add(call, dropout, row, loaded, thread, total);
  }
  for (int which = 0; which < (call.biased ? 2 : 1); ++which) {
    float* to = partials_of(call, which);
#pragma unroll
    for (int p = 0; p < kColumns / N; ++p) {
      const int at = Own::column(thread, p);
      if (at < call.width) {
        Floats<N> part;
#pragma unroll
        for (int e = 0; e < N; ++e) {
          part[e] = which == 0 ? share.dgain[p * N + e] : share.dbias[p * N + e];
        }
        store_floats(to + at, part);
      }
    }
  }
}

constexpr int kAnyThreads = 256;

template <class T, bool kDrops>
__global__ void __launch_bounds__(kAnyThreads) any_rows_kernel(Rows<T, kDrops> call) {
  __shared__ float warp_sums[32];
  start_next();
  wait_for_previous();
  const int thread = static_cast<int>(threadIdx.x);
  const int width = call.width;
  const DropoutArg dropout = ready_dropout(call);
  float* dgain = partials_of(call, 0);
  float* dbias = partials_of(call, 1);
  for (int i = thread; i < width; i += kAnyThreads) {
    dgain[i] = 0;
    if (call.biased) dbias[i] = 0;
  }
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(width);
    const float mean = call.mean != nullptr ? call.mean[row] : 0.0f;
    const float rstd = call.rstd[row];
    float sum_of_g = 0, sum_of_gn = 0;
    for (int i = thread; i < width; i += kAnyThreads) {
      const float dy = to_float(call.dy[first + i]);
      const float n = (to_float(call.sum[first + i]) - mean) * rstd;
      const float g = dy * load_gain<1>(call, i)[0];
      sum_of_g += g;
      sum_of_gn += g * n;
      dgain[i] += dy * n;
      if (call.biased) dbias[i] += dy;
    }
    sum_of_g = block_sum(sum_of_g, warp_sums);
    sum_of_gn = block_sum(sum_of_gn, warp_sums);
    const auto columns = static_cast<float>(width);
    const Averages average{call.mean != nullptr ? sum_of_g / columns : 0.0f, sum_of_gn / columns};
    for (int i = thread; i < width; i += kAnyThreads) {
      Floats<1> gradient =
          through_norm(load_floats<1>(call.dy + first + i), load_floats<1>(call.sum + first + i),
                       load_gain<1>(call, i), mean, rstd, average);
      if (call.dresidual != nullptr) gradient[0] += to_float(call.dresidual[first + i]);
      store_gradients(call, dropout, first + static_cast<std::size_t>(i), gradient);
    }
  }
}

}  // namespace lockstep::cuda::norm_backward
