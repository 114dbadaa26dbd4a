// A warp has a part of one row: four packs a lane, which it loads from all tables before it adds.
#include "lockstep/ops/cuda/device/dropout.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/embedding/embedding.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPacks = 4;

template <class T>
struct Rows {
  const std::int32_t* tokens;
  const std::int32_t* types;  // null without types_table
  std::int64_t sequence;
  const T* tokens_table;
  const T* positions_table;  // may be null
  const T* types_table;      // may be null
  std::int64_t classes;      // rows of tokens_table
  std::int64_t first_token;  // of these rows
  std::int64_t vocabulary;
  std::int64_t type_count;  // rows of types_table
  DropoutArg dropout;
  T* y;
  std::int64_t rows;
  int width;
  Faults* faults;
};

// The row of a table that is to be added, null where there is none.
template <class T>
struct Summands {
  const T* token;  // null where another shard has it; all are where an index was wrong
  const T* position;
  const T* type;
};

template <class T>
__device__ __forceinline__ Summands<T> summands(const Rows<T>& call, std::int64_t row,
                                                bool reports) {
  const auto width = static_cast<std::size_t>(call.width);
  const std::int32_t token = call.tokens[row];
  bool wrong = token < 0 || token >= call.vocabulary;
  if (wrong && reports) atomicMin(&call.faults->token, fault(row, token));
  Summands<T> result{nullptr, nullptr, nullptr};
  const std::int64_t entry = token - call.first_token;
  if (entry >= 0 && entry < call.classes) {
    result.token = call.tokens_table + static_cast<std::size_t>(entry) * width;
  }
  if (call.positions_table != nullptr) {
    const std::int64_t position = row % call.sequence;
    result.position = call.positions_table + static_cast<std::size_t>(position) * width;
  }
  if (call.types_table != nullptr) {
    const std::int32_t type = call.types[row];
    const bool wrong_type = type < 0 || type >= call.type_count;
    if (wrong_type && reports) atomicMin(&call.faults->type, fault(row, type));
    wrong = wrong || wrong_type;
    result.type = call.types_table + static_cast<std::size_t>(type) * width;
  }
  if (wrong) result = {nullptr, nullptr, nullptr};
  return result;
}

template <int N>
__device__ __forceinline__ void add(Floats<N>& sum, const Floats<N>& summand) {
#pragma unroll
  for (int e = 0; e < N; ++e) sum[e] += summand[e];
}

// blockIdx.y counts the parts of a row.
template <class T, int N, bool kDrops>
__global__ void __launch_bounds__(kWarps * 32) embedding_kernel(Rows<T> call) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= call.rows) return;
  const Summands<T> from = summands(call, row, lane == 0 && blockIdx.y == 0);
  const int first = static_cast<int>(blockIdx.y) * 32 * kPacks * N;
  const auto column = [&](int pack) { return first + (pack * 32 + lane) * N; };

  Pack<T, N> tokens[kPacks], positions[kPacks], types[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) < call.width) {
      if (from.token != nullptr) tokens[p] = load_pack<N>(from.token + column(p));
      if (from.position != nullptr) positions[p] = load_pack<N>(from.position + column(p));
      if (from.type != nullptr) types[p] = load_pack<N>(from.type + column(p));
    }
  }
  DropoutArg dropout = call.dropout;
  if constexpr (kDrops) dropout.step = {dropout.step.get(), nullptr};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) < call.width) {
      Floats<N> sum = {};
      if (from.token != nullptr) sum = to_floats(tokens[p]);
      if (from.position != nullptr) add(sum, to_floats(positions[p]));
      if (from.type != nullptr) add(sum, to_floats(types[p]));
      const std::size_t index =
          static_cast<std::size_t>(row) * static_cast<std::size_t>(call.width) +
          static_cast<std::size_t>(column(p));
      if constexpr (kDrops) {
        const Floats<N> factors = DropoutKey(dropout).factors<N>(index);
#pragma unroll
        for (int e = 0; e < N; ++e) sum[e] *= factors[e];
      }
      store_floats(call.y + index, sum);
    }
  }
}

template <class T, int N>
void launch(const Context& context, const Rows<T>& call, bool drops) {
  const dim3 grid(
      static_cast<unsigned>(divide_up(static_cast<std::size_t>(call.rows), kWarps)),
      static_cast<unsigned>(divide_up(static_cast<std::size_t>(call.width), 32 * kPacks * N)));
  if (drops) {
    embedding_kernel<T, N, true><<<grid, kWarps * 32, 0, context.stream>>>(call);
  } else {
    embedding_kernel<T, N, false><<<grid, kWarps * 32, 0, context.stream>>>(call);
  }
  check_launch("embedding");
}

}  // namespace

void run(const Context& context, const ops::Embedding& call) {
  if (call.y.elements() == 0) return;
  with_compute_type(call.y.dtype(), [&]<class T>(TypeTag<T>) {
    const bool types = ops::is_given(call.types_table);
    const bool drops = call.dropout.probability > 0;
    const Rows<T> rows{
        .tokens = data_of<const std::int32_t>(call.tokens),
        .types = data_of<const std::int32_t>(call.types),
        .sequence = call.sequence,
        .tokens_table = data_of<const T>(call.tokens_table),
        .positions_table = data_of<const T>(call.positions_table),
        .types_table = data_of<const T>(call.types_table),
        .classes = call.tokens_table.shape()[0],
        .first_token = call.first_token,
        .vocabulary = call.vocabulary > 0 ? call.vocabulary : call.tokens_table.shape()[0],
        .type_count = types ? call.types_table.shape()[0] : 0,
        .dropout = drops ? dropout_arg(call.dropout) : DropoutArg{},
        .y = data_of<T>(call.y),
        .rows = call.y.shape()[0],
        .width = static_cast<int>(call.y.shape()[1]),
        .faults = context.faults};
    constexpr int N = kPerVector<T>;
    if (rows.width % N == 0 &&
        all_allow_packs<T, N>(call.tokens_table, call.positions_table, call.types_table, call.y)) {
      launch<T, N>(context, rows, drops);
    } else {
      launch<T, 1>(context, rows, drops);
    }
  });
}

}  // namespace lockstep::cuda
