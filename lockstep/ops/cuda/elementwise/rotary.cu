// A block has a few rows. It computes the frequencies of the pairs, then the sines and cosines of
// every row's angles into shared memory, where all heads of the row use them. Then it rotates the
// pairs. A thread takes N pairs, which are two packs half a head apart; of a wider head the first
// elements alone are one in this sense.
#include "lockstep/ops/cuda/elementwise/rotary.h"

#include <algorithm>

#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/rotary_angles.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostRows = 16;
constexpr int kUnroll = 2;

struct Shape {
  std::int64_t rows;
  std::int64_t sequence;
  std::int64_t first_position;
  std::size_t width;  // of a row
  int first;          // column of the first head
  int heads;
  int stride;  // from head to head
  int half;    // pairs of a head
  int rows_each;
  RotaryTurns turns;
  bool backward;
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads) rotary_kernel(T* x, Shape shape) {
  extern __shared__ double frequencies[];  // [half], and behind them cosines and sines [rows][half]
  auto* turns = reinterpret_cast<float2*>(frequencies + shape.half);
  const auto thread = static_cast<int>(threadIdx.x);
  const int half = shape.half;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * shape.rows_each;
  const auto rows = static_cast<int>(min(std::int64_t{shape.rows_each}, shape.rows - first_row));

  for (int i = thread; i < half; i += kThreads) {
    frequencies[i] = rotary_frequency(shape.turns, i, half);
  }
  __syncthreads();
  const std::int64_t first_place = first_row % shape.sequence;
  for (int i = thread; i < rows * half; i += kThreads) {
    const int row = i / half;
    std::int64_t place = first_place + row;
    if (place >= shape.sequence) place %= shape.sequence;
    const auto position = static_cast<double>(shape.first_position + place);
    float2 turn = cosine_and_sine(position * frequencies[i - row * half]);
    if (shape.backward) turn.y = -turn.y;
    turn.x *= shape.turns.amplitude;
    turn.y *= shape.turns.amplitude;
    turns[i] = turn;
  }
  __syncthreads();

  const int packs = half / N;  // of half a head
  const int row_packs = packs * shape.heads;
  const int all_packs = rows * row_packs;
  for (int base = thread; base < all_packs; base += kUnroll * kThreads) {
    Pack<T, N> lows[kUnroll], highs[kUnroll];
    T* at[kUnroll];
    const float2* by[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int i = base + u * kThreads;
      if (i < all_packs) {
        const int row = i / row_packs;
        const int in_row = i - row * row_packs;
        const int head = in_row / packs;
        const int pair = (in_row - head * packs) * N;
        by[u] = turns + row * half + pair;
        at[u] = x + static_cast<std::size_t>(first_row + row) * shape.width +
                static_cast<std::size_t>(shape.first + head * shape.stride + pair);
        lows[u] = load_pack<N>(at[u]);
        highs[u] = load_pack<N>(at[u] + half);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (base + u * kThreads < all_packs) {
        const Floats<N> a = to_floats(lows[u]), b = to_floats(highs[u]);
        Floats<N> low, high;
#pragma unroll
        for (int e = 0; e < N; ++e) {
          const float2 turn = by[u][e];
          low[e] = a[e] * turn.x - b[e] * turn.y;
          high[e] = a[e] * turn.y + b[e] * turn.x;
        }
        store_floats(at[u], low);
        store_floats(at[u] + half, high);
      }
    }
  }
}

}  // namespace

void run(const Context& context, const ops::Rotary& call) {
  const Tensor& x = call.x.rows;
  if (x.elements() == 0) return;
  Shape shape{.rows = x.shape()[0],
              .sequence = call.sequence,
              .first_position = call.first_position,
              .width = static_cast<std::size_t>(x.shape()[1]),
              .first = static_cast<int>(call.x.first),
              .heads = static_cast<int>(call.heads),
              .stride = static_cast<int>(call.stride > 0 ? call.stride : call.head_size),
              .half = static_cast<int>(call.head_size / 2),
              .rows_each = 1,
              .turns = turns_of(call),
              .backward = call.backward};
  // Many rows per block share frequencies; few rows go to many blocks. Sines and cosines fit into
  // the shared memory that every kernel may use.
  const auto half = static_cast<std::size_t>(shape.half);
  const std::int64_t fitting_rows = static_cast<std::int64_t>(32 * 1024 / (half * sizeof(float2)));
  const std::int64_t spread = shape.rows / (4 * std::max(context.multiprocessors, 1));
  shape.rows_each =
      static_cast<int>(std::clamp<std::int64_t>(std::min(fitting_rows, spread), 1, kMostRows));
  const std::size_t shared =
      half * (sizeof(double) + static_cast<std::size_t>(shape.rows_each) * sizeof(float2));
  const auto blocks = static_cast<unsigned>(
      divide_up(static_cast<std::size_t>(shape.rows), static_cast<std::size_t>(shape.rows_each)));
  with_compute_type(x.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr int N = kPerVector<T>;
    const auto launch = [&](auto* kernel) {
      if (shared > 48 * 1024) {
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared)),
              "rotary: shared memory");
      }
      kernel<<<blocks, kThreads, shared, context.stream>>>(data_of<T>(x), shape);
      check_launch("rotary");
    };
    const bool vectors = shape.half % N == 0 && shape.first % N == 0 && shape.stride % N == 0 &&
                         shape.width % N == 0 && allows_packs<T, N>(x);
    if (vectors) {
      launch(rotary_kernel<T, N>);
    } else {
      launch(rotary_kernel<T, 1>);
    }
  });
}

}  // namespace lockstep::cuda
