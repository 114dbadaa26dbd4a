// A team of 8, 16 or 32 lanes has a head of a row. It reads the head twice: for its sum, and for
// its result.
//
// In backward a block walks over many heads, so that few partial sums of the gradient of the gain
// are left. Every team adds to a row of its own in shared memory. Then the teams' rows are summed,
// and the blocks' (device/partial_sums.h).
#include "lockstep/ops/cuda/norm/heads.h"

#include <algorithm>
#include <bit>

#include "lockstep/ops/cuda/device/partial_sums.h"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

// Heads inside wider rows. T is const for inputs.
template <class T>
struct HeadsOf {
  T* first;            // head 0 of row 0
  std::int64_t width;  // of a row

  __device__ T* at(std::int64_t row, std::int64_t column) const {
    return first + row * width + column;
  }
};

template <class T>
HeadsOf<T> heads_of(const ops::Heads& heads) {
  return {data_of<T>(heads.rows) + heads.first, heads.rows.shape()[1]};
}

// Heads are numbered through all rows.
struct HeadShape {
  std::int64_t count;  // rows times heads
  int heads;
  int size;

  __device__ std::int64_t row_of(std::int64_t head) const { return head / heads; }
  __device__ std::int64_t column_of(std::int64_t head) const { return head % heads * size; }
};

HeadShape shape_of(const ops::Heads& x, std::int64_t heads, std::int64_t size) {
  return {x.rows.shape()[0] * heads, static_cast<int>(heads), static_cast<int>(size)};
}

constexpr int kForwardThreads = 256;

template <class T, int N, int kLanes>
__global__ void __launch_bounds__(kForwardThreads)
    head_norm_kernel(HeadShape shape, HeadsOf<const T> x, const T* gain, HeadsOf<T> y, float* rstds,
                     float epsilon) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t head = std::int64_t{blockIdx.x} * (kForwardThreads / kLanes) +
                            static_cast<int>(threadIdx.x) / kLanes;
  const bool there = head < shape.count;  // lanes of a warp stay together for their sums
  const std::int64_t row = there ? shape.row_of(head) : 0;
  const std::int64_t column = there ? shape.column_of(head) : 0;
  const int size = there ? shape.size : 0;
  const T* from = x.at(row, column);
  T* to = y.at(row, column);
  float squares = 0;
  for (int i = lane * N; i < size; i += kLanes * N) {
    const Floats<N> a = load_floats<N>(from + i);
#pragma unroll
    for (int e = 0; e < N; ++e) squares = fmaf(a[e], a[e], squares);
  }
  squares = warp_sum<kLanes>(squares);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(shape.size) + epsilon);
  if (there && lane == 0) rstds[head] = rstd;
  for (int i = lane * N; i < size; i += kLanes * N) {
    const Floats<N> a = load_floats<N>(from + i), g = load_floats<N>(gain + i);
    Floats<N> normed;
#pragma unroll
    for (int e = 0; e < N; ++e) normed[e] = a[e] * rstd * g[e];
    store_floats(to + i, normed);
  }
}

constexpr int kBackwardThreads = 1024;

template <class T>
struct HeadBackward {
  HeadShape shape;
  HeadsOf<const T> x;
  const T* gain;
  const float* rstds;
  HeadsOf<const T> dy;
  HeadsOf<T> dx;    // may be dy
  float* partials;  // [blocks][size]: of the gradient of the gain
};

// The shared memory has a row of `size` for every team of the block.
template <class T, int N, int kLanes>
__global__ void __launch_bounds__(kBackwardThreads)
    head_norm_backward_kernel(HeadBackward<T> call) {
  extern __shared__ uint4 team_memory[];
  auto* of_teams = reinterpret_cast<float*>(team_memory);
  const HeadShape& shape = call.shape;
  const int threads = static_cast<int>(blockDim.x), teams = threads / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int team = static_cast<int>(threadIdx.x) / kLanes;
  float* dgain = of_teams + team * shape.size;
  for (int i = static_cast<int>(threadIdx.x); i < teams * shape.size; i += threads) of_teams[i] = 0;
  __syncthreads();

  const std::int64_t step = std::int64_t{gridDim.x} * teams;
  // The teams of a warp take as many turns, so that their lanes stay together for their sums.
  for (std::int64_t first = std::int64_t{blockIdx.x} * teams; first < shape.count; first += step) {
    const std::int64_t head = first + team;
    const bool there = head < shape.count;
    const std::int64_t row = there ? shape.row_of(head) : 0;
    const std::int64_t column = there ? shape.column_of(head) : 0;
    const int size = there ? shape.size : 0;
    const T* x = call.x.at(row, column);
    const T* dy = call.dy.at(row, column);
    T* dx = call.dx.at(row, column);
    const float rstd = there ? call.rstds[head] : 0.0f;
    float sum = 0;
    for (int i = lane * N; i < size; i += kLanes * N) {
      const Floats<N> a = load_floats<N>(x + i), d = load_floats<N>(dy + i),
                      g = load_floats<N>(call.gain + i);
      Floats<N> added = load_floats<N>(dgain + i);
#pragma unroll
      for (int e = 0; e < N; ++e) {
        const float normed = a[e] * rstd;
        sum = fmaf(d[e] * g[e], normed, sum);
        added[e] = fmaf(d[e], normed, added[e]);
      }
      store_floats(dgain + i, added);
    }
    const float average = warp_sum<kLanes>(sum) / static_cast<float>(shape.size);
    for (int i = lane * N; i < size; i += kLanes * N) {
      const Floats<N> a = load_floats<N>(x + i), d = load_floats<N>(dy + i),
                      g = load_floats<N>(call.gain + i);
      Floats<N> result;
#pragma unroll
      for (int e = 0; e < N; ++e) result[e] = rstd * (d[e] * g[e] - a[e] * rstd * average);
      store_floats(dx + i, result);
    }
  }

  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < shape.size; i += threads) {
    float sum = 0;
    for (int t = 0; t < teams; ++t) sum += of_teams[t * shape.size + i];
    call.partials[std::int64_t{blockIdx.x} * shape.size + i] = sum;
  }
}

// Calls f with the elements of a pack and the lanes of a team, as types.
template <class T, class F>
void with_head_team(std::int64_t size, bool vectors, F&& f) {
  constexpr int N = kPerVector<T>;
  const auto with_lanes = [&]<int kPack>(std::integral_constant<int, kPack> pack) {
    if (size <= 8 * kPack) return f(pack, std::integral_constant<int, 8>{});
    if (size <= 16 * kPack) return f(pack, std::integral_constant<int, 16>{});
    f(pack, std::integral_constant<int, 32>{});
  };
  if (vectors) return with_lanes(std::integral_constant<int, N>{});
  with_lanes(std::integral_constant<int, 1>{});
}

template <class T>
bool allows_head_packs(const ops::Heads& heads, std::int64_t size) {
  constexpr int N = kPerVector<T>;
  return size % N == 0 && heads.first % N == 0 && heads.rows.shape()[1] % N == 0 &&
         allows_packs<T, N>(heads.rows);
}

}  // namespace

void run(const Context& context, const ops::HeadNorm& call) {
  const HeadShape shape = shape_of(call.x, call.heads, call.head_size);
  if (shape.count == 0) return;
  with_compute_type(call.x.rows.dtype(), [&]<class T>(TypeTag<T>) {
    const bool vectors = allows_head_packs<T>(call.x, call.head_size) &&
                         allows_head_packs<T>(call.y, call.head_size) &&
                         allows_packs<T, kPerVector<T>>(call.gain);
    with_head_team<T>(call.head_size, vectors,
                      [&]<int N, int kLanes>(std::integral_constant<int, N>,
                                             std::integral_constant<int, kLanes>) {
                        const auto blocks = static_cast<unsigned>(divide_up(
                            static_cast<std::size_t>(shape.count), kForwardThreads / kLanes));
                        head_norm_kernel<T, N, kLanes>
                            <<<blocks, kForwardThreads, 0, context.stream>>>(
                                shape, heads_of<const T>(call.x), data_of<const T>(call.gain),
                                heads_of<T>(call.y), data_of<float>(call.rstd), call.epsilon);
                        check_launch("head_norm");
                      });
  });
}

void run(const Context& context, const ops::HeadNormBackward& call) {
  const HeadShape shape = shape_of(call.x, call.heads, call.head_size);
  if (shape.count == 0) return;
  // Partial sums fit into the memory for them, rows of the teams into what every kernel may use.
  constexpr std::int64_t kSharedFloats = 48 * 1024 / sizeof(float);
  constexpr std::int64_t kSums = std::int64_t{Context::kPartials} * 2;
  with_compute_type(call.x.rows.dtype(), [&]<class T>(TypeTag<T>) {
    const bool vectors = allows_head_packs<T>(call.x, call.head_size) &&
                         allows_head_packs<T>(call.dy, call.head_size) &&
                         allows_head_packs<T>(call.dx, call.head_size) &&
                         allows_packs<T, kPerVector<T>>(call.gain);
    with_head_team<T>(
        call.head_size, vectors,
        [&]<int N, int kLanes>(std::integral_constant<int, N>,
                               std::integral_constant<int, kLanes>) {
          // Whole warps.
          const auto fitting = static_cast<std::uint64_t>(
              std::min<std::int64_t>(kSharedFloats / call.head_size, kBackwardThreads / kLanes));
          const int least = 32 / kLanes;
          const int teams = std::max(static_cast<int>(std::bit_floor(fitting)), least);
          const std::int64_t blocks = std::clamp<std::int64_t>(
              (shape.count + teams - 1) / teams, 1,
              std::min<std::int64_t>(kSums / call.head_size, 2 * context.multiprocessors));
          auto* partials = reinterpret_cast<float*>(context.partials);
          const HeadBackward<T> arguments{.shape = shape,
                                          .x = heads_of<const T>(call.x),
                                          .gain = data_of<const T>(call.gain),
                                          .rstds = data_of<const float>(call.rstd),
                                          .dy = heads_of<const T>(call.dy),
                                          .dx = heads_of<T>(call.dx),
                                          .partials = partials};
          head_norm_backward_kernel<T, N, kLanes>
              <<<static_cast<unsigned>(blocks), static_cast<unsigned>(teams * kLanes),
                 static_cast<std::size_t>(teams * call.head_size) * sizeof(float),
                 context.stream>>>(arguments);
          check_launch("head_norm_backward");
          add_partial_sums(context, partials, blocks, call.dgain);
        });
  });
}

}  // namespace lockstep::cuda
