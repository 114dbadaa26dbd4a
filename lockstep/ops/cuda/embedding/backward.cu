// Every table's gradient is computed in the same way: rows are sorted by their entries
// (embedding/order.h), then two kernels without atomics sum in that order.
//
// The ordered list is cut into windows of a fixed number of places. A warp sums the rows of one
// window, 32 packs wide; a sum is complete when the entry changes. If all rows of an entry are in
// the window, its sum goes to the table at once. Otherwise the entry has a partial sum in every
// window that it touches: the window where it begins stores it as `tail`, later ones as `head`. The
// second kernel sums the partial sums of each such entry. kJoinWarps warps take a range of windows
// each, so that even an entry that owns all rows is fast.
#include <algorithm>

#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/elementwise/elementwise.h"
#include "lockstep/ops/cuda/embedding/embedding.h"
#include "lockstep/ops/cuda/embedding/order.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

// Places in a window. Few rows need short ones, to occupy the chip; long ones have fewer edges.
constexpr std::uint32_t window_of(std::size_t rows) {
  return rows >= 65536 ? 64 : rows >= 16384 ? 32 : 16;
}

template <class T, class Gradient>
struct Sums {
  const std::uint32_t* keys;
  const std::uint32_t* order;
  std::uint32_t places;
  std::uint32_t window;
  std::uint32_t entries;  // keys from here on are no entries
  const T* dy;
  Gradient* table;
  float* parts;  // [windows][head, tail][width]
  int width;
};

enum Part { kHead, kTail };

template <class T, class Gradient>
__device__ __forceinline__ float* part_of(const Sums<T, Gradient>& call, std::uint32_t window,
                                          Part part, int column) {
  const std::size_t row = std::size_t{window} * 2 + static_cast<std::size_t>(part);
  return call.parts + row * static_cast<std::size_t>(call.width) + column;
}

template <int N, class T, class Gradient>
__device__ __forceinline__ void add_to_table(const Sums<T, Gradient>& call, std::uint32_t entry,
                                             int column, const Floats<N>& sum) {
  Gradient* to = call.table + std::size_t{entry} * static_cast<std::size_t>(call.width) + column;
  Floats<N> total = load_floats<N>(to);
#pragma unroll
  for (int e = 0; e < N; ++e) total[e] += sum[e];
  store_floats(to, total);
}

constexpr int kSumWarps = 4;
constexpr int kAtOnce = 8;  // rows that are loaded together
constexpr std::uint32_t kNoKey = 0xffffffffu;

template <class T, class Gradient, int N>
__global__ void __launch_bounds__(kSumWarps * 32) sum_windows(Sums<T, Gradient> call) {
  constexpr unsigned kAll = 0xffffffffu;
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t window = blockIdx.x * kSumWarps + threadIdx.x / 32;
  const std::size_t begins = std::size_t{window} * call.window;
  if (begins >= call.places) return;
  const auto begin = static_cast<std::uint32_t>(begins);
  const std::uint32_t end = min(begin + call.window, call.places);
  const int column = static_cast<int>((blockIdx.y * 32 + lane) * N);
  const bool has_columns = column < call.width;

  const std::uint32_t next = end < call.places ? call.keys[end] : kNoKey;
  std::uint32_t entry = call.keys[begin];
  bool continued = begin > 0 && call.keys[begin - 1] == entry;
  Floats<N> sum = {};
  const auto finish = [&](bool continues) {
    if (entry >= call.entries || !has_columns) return;
    if (continued) {
      store_floats(part_of(call, window, kHead, column), sum);
    } else if (continues) {
      store_floats(part_of(call, window, kTail, column), sum);
    } else {
      add_to_table(call, entry, column, sum);
    }
  };

  for (std::uint32_t base = begin; base < end; base += 32) {
    const std::uint32_t count = min(end - base, 32u);
    const bool is_there = lane < count;
    const std::uint32_t lane_key = is_there ? call.keys[base + lane] : kNoKey;
    const std::uint32_t lane_row = is_there ? call.order[base + lane] : 0;
    for (std::uint32_t k = 0; k < count; k += kAtOnce) {
      Pack<T, N> rows[kAtOnce];
#pragma unroll
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        if (k + j < count) {
          const std::uint32_t row = __shfl_sync(kAll, lane_row, static_cast<int>(k + j));
          const std::size_t first = std::size_t{row} * static_cast<std::size_t>(call.width);
          if (has_columns) rows[j] = load_pack<N>(call.dy + first + column);
        }
      }
#pragma unroll
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        if (k + j < count) {
          const std::uint32_t key = __shfl_sync(kAll, lane_key, static_cast<int>(k + j));
          if (key != entry) {
            finish(false);
            entry = key;
            continued = false;
            sum = {};
          }
          if (has_columns) {
            const Floats<N> row = to_floats(rows[j]);
#pragma unroll
            for (int e = 0; e < N; ++e) sum[e] += row[e];
          }
        }
      }
    }
  }
  finish(next == entry);
}

constexpr int kJoinWarps = 8;

// One block per window. It works only if an entry begins in the window and continues after it.
template <class T, class Gradient, int N>
__global__ void __launch_bounds__(kJoinWarps * 32) join_windows(Sums<T, Gradient> call) {
  __shared__ float shares[kJoinWarps][32 * N];
  const std::uint32_t window = blockIdx.x;
  const std::size_t ends = (std::size_t{window} + 1) * call.window;
  if (ends >= call.places) return;
  const auto end = static_cast<std::uint32_t>(ends);
  const std::uint32_t begin = end - call.window;
  const std::uint32_t entry = call.keys[end];
  if (entry >= call.entries || call.keys[end - 1] != entry) return;
  if (begin > 0 && call.keys[begin - 1] == entry) return;

  // The last window that begins with the entry.
  std::uint32_t last = window + 1;
  std::uint32_t beyond = (call.places + call.window - 1) / call.window;
  while (beyond - last > 1) {
    const std::uint32_t middle = last + (beyond - last) / 2;
    if (call.keys[middle * call.window] == entry) {
      last = middle;
    } else {
      beyond = middle;
    }
  }

  const auto lane = static_cast<int>(threadIdx.x % 32);
  const std::uint32_t warp = threadIdx.x / 32;
  const int column = static_cast<int>(blockIdx.y) * 32 * N + lane * N;
  const std::uint32_t count = last - window + 1;
  const std::uint32_t each = (count + kJoinWarps - 1) / kJoinWarps;
  Floats<N> sum = {};
  if (column < call.width) {
    const std::uint32_t stop = min((warp + 1) * each, count);
#pragma unroll 4
    for (std::uint32_t i = warp * each; i < stop; ++i) {
      const Floats<N> part =
          load_floats<N>(part_of(call, window + i, i == 0 ? kTail : kHead, column));
#pragma unroll
      for (int e = 0; e < N; ++e) sum[e] += part[e];
    }
  }
#pragma unroll
  for (int e = 0; e < N; ++e) shares[warp][lane * N + e] = sum[e];
  __syncthreads();
  if (warp != 0 || column >= call.width) return;
  for (int w = 1; w < kJoinWarps; ++w) {
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] += shares[w][lane * N + e];
  }
  add_to_table(call, entry, column, sum);
}

template <int N, class T, class Gradient>
void launch(const Context& context, const Sums<T, Gradient>& call) {
  const auto windows = static_cast<unsigned>(divide_up(call.places, call.window));
  const auto parts = static_cast<unsigned>(divide_up(static_cast<std::size_t>(call.width), 32 * N));
  sum_windows<T, Gradient, N><<<dim3(static_cast<unsigned>(divide_up(windows, kSumWarps)), parts),
                                kSumWarps * 32, 0, context.stream>>>(call);
  check_launch("embedding_backward: sums");
  join_windows<T, Gradient, N><<<dim3(windows, parts), kJoinWarps * 32, 0, context.stream>>>(call);
  check_launch("embedding_backward: joins");
}

// The layout of the workspace: parts aligned to 256 bytes.
struct BackwardWorkspace {
  OrderWorkspace order;
  float* parts;
  std::size_t bytes;
};
BackwardWorkspace workspace_for(std::byte* memory, std::size_t rows, std::size_t width) {
  std::size_t used = 0;
  const auto take = [&]<class E>(E*& to, std::size_t elements) {
    to = memory == nullptr ? nullptr : reinterpret_cast<E*>(memory + used);
    used += divide_up(elements * sizeof(E), 256) * 256;
  };
  BackwardWorkspace workspace{};
  for (int i = 0; i < 2; ++i) {
    take(workspace.order.keys[i], rows);
    take(workspace.order.rows[i], rows);
  }
  take(workspace.order.counts, order_counts(rows));
  take(workspace.parts, divide_up(rows, window_of(rows)) * 2 * width);
  workspace.bytes = used;
  return workspace;
}

template <class T, class Gradient>
void add_typed(const Context& context, const Tensor& dy, const Tensor& table, const RowOrder& order,
               float* parts) {
  const auto rows = static_cast<std::size_t>(dy.shape()[0]);
  const Sums<T, Gradient> sums{.keys = order.keys,
                               .order = order.rows,
                               .places = static_cast<std::uint32_t>(rows),
                               .window = window_of(rows),
                               .entries = static_cast<std::uint32_t>(table.shape()[0]),
                               .dy = data_of<const T>(dy),
                               .table = data_of<Gradient>(table),
                               .parts = parts,
                               .width = static_cast<int>(dy.shape()[1])};
  constexpr int N = kPerVector<T>;
  if (sums.width % N == 0 && allows_packs<T, N>(dy) && allows_packs<Gradient, N>(table)) {
    launch<N>(context, sums);
  } else {
    launch<1>(context, sums);
  }
}

void add_to(const Context& context, const Tensor& dy, const Tensor& table, const RowOrder& order,
            float* parts) {
  with_compute_type(dy.dtype(), [&]<class T>(TypeTag<T>) {
    if (table.dtype() == dy.dtype()) {
      add_typed<T, T>(context, dy, table, order, parts);
    } else {
      add_typed<T, float>(context, dy, table, order, parts);
    }
  });
}

}  // namespace

std::size_t embedding_scratch(std::int64_t rows, std::int64_t width) {
  return workspace_for(nullptr, static_cast<std::size_t>(rows), static_cast<std::size_t>(width))
      .bytes;
}

void run(const Context& context, const ops::EmbeddingBackward& call) {
  if (call.dy.elements() == 0) return;
  const auto rows = static_cast<std::size_t>(call.dy.shape()[0]);
  const auto width = static_cast<std::size_t>(call.dy.shape()[1]);
  const BackwardWorkspace workspace = workspace_for(context.workspace, rows, width);
  if (context.workspace_bytes < workspace.bytes) {
    check(cudaErrorMemoryAllocation, "embedding_backward without enough workspace");
  }
  if (call.dropout.probability > 0) {
    run(context, ops::Drop{.dropout = call.dropout, .x = call.dy, .y = call.dy});
  }
  if (ops::is_given(call.dtokens_table)) {
    const std::int64_t count = call.dtokens_table.shape()[0];
    const TableEntries entries{call.first_token, count,
                               call.vocabulary > 0 ? call.vocabulary : count};
    const RowOrder order =
        order_by_index(context, workspace.order, data_of<const std::int32_t>(call.tokens), rows,
                       entries, &context.faults->token);
    add_to(context, call.dy, call.dtokens_table, order, workspace.parts);
  }
  if (ops::is_given(call.dpositions_table)) {
    const RowOrder order = order_by_position(context, workspace.order, rows, call.sequence);
    add_to(context, call.dy, call.dpositions_table, order, workspace.parts);
  }
  if (ops::is_given(call.dtypes_table)) {
    const std::int64_t count = call.dtypes_table.shape()[0];
    const RowOrder order =
        order_by_index(context, workspace.order, data_of<const std::int32_t>(call.types), rows,
                       {0, count, count}, &context.faults->type);
    add_to(context, call.dy, call.dtypes_table, order, workspace.parts);
  }
}

}  // namespace lockstep::cuda
