// Sums of squares, in double throughout, since the square of a float may be larger or smaller than
// any float.
//
// The order of additions is that of ops::sum_of_runs(): runs of 64 elements, spans of 64 runs in
// order, and then the spans in order. A warp has a span and loads it in packs of 16 bytes. The 8,
// 16 or 32 lanes of a run sum the squares of their own pack and then reduce in a butterfly. That
// order depends only on the element type, not on the address of x, so the runs of a part of x have
// the same bits as in the whole. One block sums the spans of a chunk, or a second kernel if the
// chunk has many. A tensor of more than SumOfSquares::kMost elements is cut into chunks of that
// size, which are summed in order.
#include <algorithm>
#include <cmath>

#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/optimizer/optimizer.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRun = static_cast<int>(ops::SumOfSquares::kRun);
constexpr int kSpanRuns = static_cast<int>(ops::kSpanRuns);
constexpr std::size_t kSpan = std::size_t{kRun} * kSpanRuns;

template <class T, int N>
__device__ __forceinline__ double squares_of(const Pack<T, N>& pack) {
  double sum = 0;
  if constexpr (std::is_same_v<T, double>) {
#pragma unroll
    for (int e = 0; e < N; ++e) sum = fma(pack.at[e], pack.at[e], sum);
  } else {
    const Floats<N> x = to_floats(pack);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const auto wide = static_cast<double>(x[e]);
      sum = fma(wide, wide, sum);
    }
  }
  return sum;
}

// N elements at any alignment; elements beyond the end are 0.
template <int N, class T>
__device__ __forceinline__ double squares_at(const T* x, std::size_t index, std::size_t end) {
  double sum = 0;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    if (index + e < end) {
      double wide;
      if constexpr (std::is_same_v<T, double>) {
        wide = x[index + e];
      } else {
        wide = static_cast<double>(to_float(x[index + e]));
      }
      sum = fma(wide, wide, sum);
    }
  }
  return sum;
}

// The sums of the runs of the span from `begin` on go to `runs`, 0 where there is none. All lanes
// of a warp call it, and see the runs after it.
template <class T>
__device__ __forceinline__ void sum_runs(const T* x, std::size_t begin, std::size_t end,
                                         double (&runs)[kSpanRuns]) {
  constexpr int N = kPerVector<T>;
  constexpr int kLanes = kRun / N;  // of a run
  constexpr int kRunsAtOnce = 32 / kLanes;
  constexpr int kLoads = kSpanRuns / kRunsAtOnce;
  constexpr int kUnroll = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::size_t own = begin + static_cast<std::size_t>(lane * N);
  const bool vectors =
      begin + kSpan <= end && reinterpret_cast<std::uintptr_t>(x + begin) % 16 == 0;
  for (int first = 0; first < kLoads; first += kUnroll) {
    double sums[kUnroll];
    if (vectors) {
      Pack<T, N> packs[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        packs[u] = load_pack<N>(x + own + static_cast<std::size_t>((first + u) * 32 * N));
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) sums[u] = squares_of(packs[u]);
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        sums[u] = squares_at<N>(x, own + static_cast<std::size_t>((first + u) * 32 * N), end);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const double run = warp_sum<kLanes>(sums[u]);
      if (lane % kLanes == 0) runs[(first + u) * kRunsAtOnce + lane / kLanes] = run;
    }
  }
  __syncwarp();
}

// results[run] of all of x. A warp has a span.
template <class T>
__global__ void __launch_bounds__(kWarps * 32)
    run_sums(const T* x, std::size_t elements, std::size_t run_count, double* results) {
  __shared__ double partials[kWarps][kSpanRuns];
  const auto warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::size_t span = std::size_t{blockIdx.x} * kWarps + warp;
  if (span * kSpan >= elements) return;
  sum_runs(x, span * kSpan, elements, partials[warp]);
#pragma unroll
  for (unsigned i = 0; i < kSpanRuns; i += 32) {
    const std::size_t run = span * kSpanRuns + i + lane;
    if (run < run_count) results[run] = partials[warp][i + lane];
  }
}

// spans[chunk * spans_each + span], 0 for spans behind the end of a chunk or of x.
template <class T>
__global__ void __launch_bounds__(kWarps * 32)
    span_sums(const T* x, std::size_t elements, std::size_t chunk_elements,
              std::uint32_t spans_each, std::size_t span_count, double* spans) {
  __shared__ double partials[kWarps][kSpanRuns];
  const auto warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::size_t index = std::size_t{blockIdx.x} * kWarps + warp;
  if (index >= span_count) return;
  const std::size_t chunk = index / spans_each;
  const std::size_t chunk_end = min(elements, (chunk + 1) * chunk_elements);
  const std::size_t begin = chunk * chunk_elements + (index - chunk * spans_each) * kSpan;
  double sum = 0;
  if (begin < chunk_end) {
    sum_runs(x, begin, chunk_end, partials[warp]);
#pragma unroll 16
    for (int i = 0; i < kSpanRuns; ++i) sum += partials[warp][i];
  }
  if (lane == 0) spans[index] = sum;
}

// A block has a chunk of up to kChunkWarps spans; a warp sums each span.
constexpr int kChunkWarps = 16;

template <class T>
__global__ void __launch_bounds__(kChunkWarps * 32)
    whole_chunk_sums(const T* x, std::size_t elements, std::size_t chunk_elements,
                     double* results) {
  __shared__ double partials[kChunkWarps][kSpanRuns];
  __shared__ double spans[kChunkWarps];
  const auto warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::size_t chunk = blockIdx.x;
  const std::size_t chunk_end = min(elements, (chunk + 1) * chunk_elements);
  const std::size_t begin = chunk * chunk_elements + warp * kSpan;
  double sum = 0;
  if (begin < chunk_end) {
    sum_runs(x, begin, chunk_end, partials[warp]);
#pragma unroll 16
    for (int i = 0; i < kSpanRuns; ++i) sum += partials[warp][i];
  }
  if (lane == 0) spans[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
#pragma unroll
  for (int i = 0; i < kChunkWarps; ++i) total += spans[i];
  results[chunk] = total;
}

// The sum in order of numbers that are not negative, the same in all lanes, which all call it.
__device__ __forceinline__ double ordered_sum(const double* x, std::size_t count) {
  const unsigned lane = threadIdx.x % 32;
  double sum = 0;
  double here = lane < count ? x[lane] : 0.0;
  for (std::size_t first = 0; first < count; first += 32) {
    const std::size_t ahead = first + 32 + lane;
    const double next = ahead < count ? x[ahead] : 0.0;
#pragma unroll
    for (int i = 0; i < 32; ++i) sum += __shfl_sync(kAllLanes, here, i);
    here = next;
  }
  return sum;
}

// results[chunk] = the sum of `each` numbers from chunk * each on.
__global__ void __launch_bounds__(kWarps * 32)
    chunk_sums(const double* spans, std::size_t each, std::size_t chunks, double* results) {
  const std::size_t chunk = std::size_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (chunk >= chunks) return;
  const double sum = ordered_sum(spans + chunk * each, each);
  if (threadIdx.x % 32 == 0) results[chunk] = sum;
}

constexpr std::size_t kStretch = 64;  // squares that are summed in order

__global__ void __launch_bounds__(1024)
    clip_scale_kernel(const double* squares, std::size_t count, double limit, ScalarArg loss_scale,
                      double* norm, double* scale) {
  __shared__ double sums[32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::size_t stretches = (count + kStretch - 1) / kStretch;
  double total = 0;
  for (std::size_t first = 0; first < stretches; first += 32) {
    const std::size_t stretch = first + warp;
    double sum = 0;
    if (stretch < stretches) {
      const std::size_t begin = stretch * kStretch;
      sum = ordered_sum(squares + begin, min(kStretch, count - begin));
    }
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < 32; ++i) total += sums[i];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const double by = loss_scale.get();
  const double length = sqrt(total) / by;
  *norm = length;
  *scale = isfinite(length) ? (limit > 0 && length > limit ? limit / length : 1.0) / by
                            : __longlong_as_double(0x7ff8000000000000ll);
}

// With double among the types.
template <class F>
void with_square_type(DType dtype, F&& f) {
  if (dtype == DType::kF64) return f(TypeTag<double>{});
  with_compute_type(dtype, f);
}

unsigned warp_blocks(std::size_t warps) { return static_cast<unsigned>(divide_up(warps, kWarps)); }

// Of Context::partials the first half holds spans where the workspace is too small, the second half
// the chunks of a call that has several.
constexpr std::size_t kHalf = Context::kPartials / 2;
static_assert(ops::SumOfSquares::kMost / kSpan <= kHalf);

void sum_spans(const Context& context, const double* spans, std::size_t each, std::size_t chunks,
               double* results) {
  chunk_sums<<<warp_blocks(chunks), kWarps * 32, 0, context.stream>>>(spans, each, chunks, results);
  check_launch("sum_of_squares: spans");
}

// results[chunk] for all chunks; they have kHalf spans at most.
void sum_chunks(const Context& context, const Tensor& x, std::size_t chunk_elements,
                double* results) {
  const std::size_t elements = x.elements();
  const std::size_t chunks = divide_up(elements, chunk_elements);
  const std::size_t spans_each = divide_up(chunk_elements, kSpan);
  if (spans_each <= kChunkWarps) {
    with_square_type(x.dtype(), [&]<class T>(TypeTag<T>) {
      whole_chunk_sums<T><<<static_cast<unsigned>(chunks), kChunkWarps * 32, 0, context.stream>>>(
          data_of<const T>(x), elements, chunk_elements, results);
    });
    check_launch("sum_of_squares: chunks");
    return;
  }
  const bool fits = context.workspace_bytes >= chunks * spans_each * sizeof(double);
  double* spans = fits ? reinterpret_cast<double*>(context.workspace) : context.partials;
  const std::size_t at_once = fits ? chunks : kHalf / spans_each;
  for (std::size_t first = 0; first < chunks; first += at_once) {
    const std::size_t here = std::min(at_once, chunks - first);
    const std::size_t begin = first * chunk_elements;
    with_square_type(x.dtype(), [&]<class T>(TypeTag<T>) {
      span_sums<T><<<warp_blocks(here * spans_each), kWarps * 32, 0, context.stream>>>(
          data_of<const T>(x) + begin, std::min(elements - begin, here * chunk_elements),
          chunk_elements, static_cast<std::uint32_t>(spans_each), here * spans_each, spans);
    });
    check_launch("sum_of_squares");
    sum_spans(context, spans, spans_each, here, results + first);
  }
}

void clear(const Context& context, const Tensor& results) {
  if (results.elements() == 0) return;
  check(cudaMemsetAsync(results.data(), 0, results.bytes(), context.stream), "sum_of_squares");
}

}  // namespace

void run(const Context& context, const ops::SumOfSquares& call) {
  const std::size_t elements = call.x.elements();
  if (elements == 0) return clear(context, call.result);
  auto* result = data_of<double>(call.result);
  const std::size_t runs = ops::run_count(elements);
  if (call.result.elements() == runs) {
    with_square_type(call.x.dtype(), [&]<class T>(TypeTag<T>) {
      run_sums<T><<<warp_blocks(divide_up(elements, kSpan)), kWarps * 32, 0, context.stream>>>(
          data_of<const T>(call.x), elements, runs, result);
    });
    check_launch("sum_of_squares: runs");
    return;
  }
  std::size_t chunk = std::min(divide_up(elements, kSpan) * kSpan, ops::SumOfSquares::kMost);
  while (divide_up(elements, chunk) > kHalf) chunk *= 2;
  const std::size_t chunks = divide_up(elements, chunk);
  if (chunks == 1) return sum_chunks(context, call.x, chunk, result);
  double* sums = context.partials + kHalf;
  sum_chunks(context, call.x, chunk, sums);
  sum_spans(context, sums, chunks, 1, result);
}

void run(const Context& context, const ops::ChunkedSumOfSquares& call) {
  const std::size_t elements = call.x.elements(),
                    chunk = static_cast<std::size_t>(call.chunk_elements);
  if (elements == 0) return clear(context, call.results);
  if (chunk <= ops::SumOfSquares::kMost) {
    return sum_chunks(context, call.x, chunk, data_of<double>(call.results));
  }
  const Tensor x = call.x.reshaped({static_cast<std::int64_t>(elements)});
  for (std::size_t i = 0, first = 0; first < elements; ++i, first += chunk) {
    const std::size_t count = std::min(chunk, elements - first);
    run(context, ops::SumOfSquares{.x = x.slice(static_cast<std::int64_t>(first),
                                                static_cast<std::int64_t>(count)),
                                   .result = call.results.slice(static_cast<std::int64_t>(i), 1)});
  }
}

std::size_t squares_scratch(std::size_t elements, std::size_t chunk_elements) {
  const std::size_t chunk = std::min(chunk_elements, ops::SumOfSquares::kMost);
  return divide_up(elements, chunk) * divide_up(chunk, kSpan) * sizeof(double);
}

void run(const Context& context, const ops::ClipScale& call) {
  clip_scale_kernel<<<1, 1024, 0, context.stream>>>(
      data_of<const double>(call.squares), call.squares.elements(), call.limit,
      scalar(call.loss_scale), data_of<double>(call.norm), data_of<double>(call.scale));
  check_launch("clip_scale");
}

}  // namespace lockstep::cuda
