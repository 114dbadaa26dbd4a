// Two launches. In the first a block sums some rows of a band of columns in f32: its 8 warps take a
// row each, and a lane takes N columns. Then the warps' sums are summed in order and go to the
// workspace as one row of partial sums. The rows are cut into as many splits as fill the GPU. The
// second launch sums the partial sums of the splits (partial_sums.h). The order of summation
// depends only on the shape and the GPU.
#include <algorithm>

#include "lockstep/ops/cuda/device/partial_sums.h"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/linear/column_sums.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kUnroll = 4;
constexpr int kBlocksPerMultiprocessor = 4;
constexpr std::int64_t kLeastRows = 64;  // of a split

// The columns of a lane: those of a vector of 16 bytes, or the same number of columns 32 apart if
// dy cannot be loaded in vectors.
template <class T>
constexpr int kColumns = kPerVector<T>;

std::int64_t splits_of(std::int64_t rows, std::int64_t columns, int band, int multiprocessors) {
  const std::int64_t bands = std::max<std::int64_t>(1, (columns + band - 1) / band);
  const std::int64_t wanted = std::int64_t{multiprocessors} * kBlocksPerMultiprocessor;
  const std::int64_t filling = (wanted + bands - 1) / bands;
  const std::int64_t most = (rows + kLeastRows - 1) / kLeastRows;
  return std::max<std::int64_t>(1, std::min({filling, most, std::int64_t{65535}}));
}

template <bool kVectors, class T>
__device__ __forceinline__ Floats<kColumns<T>> load_row(const T* row, std::int64_t band,
                                                        std::int64_t columns, int lane) {
  constexpr int N = kColumns<T>;
  Floats<N> values;
  if constexpr (kVectors) {
    const std::int64_t column = band + lane * N;
    if (column + N <= columns) return load_floats<N>(row + column);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = column + i < columns ? to_float(row[column + i]) : 0.0f;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const std::int64_t column = band + i * 32 + lane;
      values[i] = column < columns ? to_float(row[column]) : 0.0f;
    }
  }
  return values;
}

template <bool kVectors, class T>
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const T* dy, std::int64_t rows, std::int64_t width, std::int64_t columns,
                       std::int64_t rows_per_split, float* partials) {
  constexpr int N = kColumns<T>;
  constexpr int kBand = 32 * N;
  __shared__ float of_warps[kWarps][kBand];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t band = std::int64_t{blockIdx.x} * kBand;
  const std::int64_t begin = std::int64_t{blockIdx.y} * rows_per_split;
  const std::int64_t end = min(begin + rows_per_split, rows);

  float sums[N] = {};
  std::int64_t row = begin + warp;
  for (; row + (kUnroll - 1) * kWarps < end; row += kUnroll * kWarps) {
    Floats<N> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      values[u] = load_row<kVectors>(dy + (row + u * kWarps) * width, band, columns, lane);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] += values[u][i];
    }
  }
  for (; row < end; row += kWarps) {
    const Floats<N> values = load_row<kVectors>(dy + row * width, band, columns, lane);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] += values[i];
  }

#pragma unroll
  for (int i = 0; i < N; ++i) of_warps[warp][kVectors ? lane * N + i : i * 32 + lane] = sums[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= kBand || band + mine >= columns) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += of_warps[w][mine];
  partials[std::int64_t{blockIdx.y} * columns + band + mine] = sum;
}

template <class T>
std::int64_t splits_for(std::int64_t rows, std::int64_t columns, int multiprocessors) {
  return splits_of(rows, columns, 32 * kColumns<T>, multiprocessors);
}

template <class T>
void launch_sums(const Context& context, const T* dy, std::int64_t rows, std::int64_t width,
                 std::int64_t columns, std::int64_t splits, float* partials) {
  constexpr int kBand = 32 * kColumns<T>;
  const dim3 grid(static_cast<unsigned>((columns + kBand - 1) / kBand),
                  static_cast<unsigned>(splits));
  const std::int64_t rows_per_split = (rows + splits - 1) / splits;
  const bool vectors = reinterpret_cast<std::uintptr_t>(dy) % 16 == 0 && width % kPerVector<T> == 0;
  if (vectors) {
    column_sums_kernel<true>
        <<<grid, kThreads, 0, context.stream>>>(dy, rows, width, columns, rows_per_split, partials);
  } else {
    column_sums_kernel<false>
        <<<grid, kThreads, 0, context.stream>>>(dy, rows, width, columns, rows_per_split, partials);
  }
  check_launch("column_sums");
}

}  // namespace

void add_column_sums(const Context& context, const Tensor& dy, std::int64_t first,
                     const Tensor& dbias, bool overwrite) {
  const std::int64_t rows = dy.shape()[0];
  const std::int64_t width = dy.shape()[1];
  const std::int64_t columns = static_cast<std::int64_t>(dbias.elements());
  if (rows == 0 || columns == 0) return;
  auto* const partials = reinterpret_cast<float*>(context.workspace);
  std::int64_t splits = 1;
  with_compute_type(dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    splits = splits_for<T>(rows, columns, context.multiprocessors);
    launch_sums(context, data_of<const T>(dy) + first, rows, width, columns, splits, partials);
  });
  add_partial_sums(context, partials, splits, dbias, overwrite);
}

std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, int multiprocessors) {
  const std::int64_t splits = std::max(splits_for<float>(rows, columns, multiprocessors),
                                       splits_for<__half>(rows, columns, multiprocessors));
  return static_cast<std::size_t>(splits) * static_cast<std::size_t>(columns) * sizeof(float);
}

}  // namespace lockstep::cuda
