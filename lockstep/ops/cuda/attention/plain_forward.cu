#include "lockstep/ops/cuda/attention/plain.h"
#include "lockstep/ops/cuda/attention/plain_tile.cuh"
#include "lockstep/ops/cuda/elementwise/soft_cap.cuh"

namespace lockstep::cuda::attention::plain {
namespace {

template <class T>
struct ForwardCall {
  Sizes sizes;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  const std::uint8_t* mask = nullptr;
  DropoutKey dropout;
  float* log_sum = nullptr;
  float* probabilities = nullptr;
  float scale = 1;
  float softcap = 0;  // 0: none
  DistanceBias bias;
  bool in_fours = false;

  template <bool kBiased>
  __device__ __forceinline__ float score_of(float product, int head, int query, int key) const {
    const float score = product * scale;
    if constexpr (kBiased) return score + bias.at(head, query, key);
    return softcap > 0 ? soft_cap(score, softcap) : score;
  }
};

// The maximum or sum over the 16 threads that hold a row.
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
  for (int apart = 8; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, apart));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
  for (int apart = 8; apart > 0; apart /= 2) x += __shfl_xor_sync(kAllLanes, x, apart);
  return x;
}

// 64 queries of one head of one sequence.
template <class T, bool kBiased>
struct QueryBlock {
  const ForwardCall<T>& call;
  int sequence, head, query;  // of the first row

  __device__ __forceinline__ Strip<T> queries() const {
    const Sizes& sizes = call.sizes;
    const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.queries + query;
    return {.first = call.q.at(row, head, sizes.head_size),
            .stride = call.q.stride,
            .rows = sizes.queries - query,
            .head_size = sizes.head_size,
            .in_fours = call.in_fours};
  }
  __device__ __forceinline__ Strip<T> other(const HeadRows<const T>& rows, int key) const {
    const Sizes& sizes = call.sizes;
    const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.keys + key;
    return {.first = rows.at(row, head / sizes.group, sizes.head_size),
            .stride = rows.stride,
            .rows = sizes.keys - key,
            .head_size = sizes.head_size,
            .mask = mask_at(call.mask, sizes, sequence, key),
            .in_fours = call.in_fours};
  }
  // Scores, with their cap or bias; -infinity where a query does not attend to a key.
  __device__ __forceinline__ void make_scores(float (&scores)[4][4], int key) const {
    const Strip<T> keys = other(call.k, key);
    multiply_rows(scores, queries(), keys);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = tile_column(j);
      const bool shown = keys.has(column, 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = query + tile_row(i);
        const bool seen = shown && attends(call.sizes, row, key + column);
        const float score = call.template score_of<kBiased>(scores[i][j], head, row, key + column);
        scores[i][j] = seen ? score : -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void write_probabilities(const float (&log_sums)[4]) const {
    const Sizes& sizes = call.sizes;
    for (int key = 0; key < sizes.keys; key += kSide) {
      float scores[4][4];
      make_scores(scores, key);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = query + tile_row(i);
        if (row >= sizes.queries) break;
        float* to = call.probabilities + query_place(sizes, sequence, head, row) * sizes.keys;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int column = key + tile_column(j);
          if (column >= sizes.keys) continue;
          to[column] = scores[i][j] == -INFINITY ? 0.0f : expf(scores[i][j] - log_sums[i]);
        }
      }
    }
  }
};

template <class T, int kParts, bool kBiased>
__global__ void __launch_bounds__(kThreads, 2) plain_forward_kernel(ForwardCall<T> call) {
  const Sizes& sizes = call.sizes;
  const int column_blocks = tiles_of(sizes.head_size, kParts * kSide);
  const int tiles = tiles_of(sizes.queries, kSide);
  unsigned at = blockIdx.x;
  const int column = static_cast<int>(at % column_blocks) * kParts * kSide;
  at /= column_blocks;
  // In causal attention late queries attend to most keys, so they come first.
  const int query = (tiles - 1 - static_cast<int>(at % tiles)) * kSide;
  at /= tiles;
  const int head = static_cast<int>(at % sizes.heads);
  const int sequence = static_cast<int>(at / sizes.heads);
  const QueryBlock<T, kBiased> block{call, sequence, head, query};
  const Keeper keeper(call.dropout, sizes, sequence, head);

  float sums[kParts][4][4];
  set_zero(sums);
  float most[4], total[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    most[i] = -INFINITY;
    total[i] = 0;
  }
  const int keys = keys_seen(sizes, query + kSide);
  for (int key = first_seen(sizes, query) / kSide * kSide; key < keys; key += kSide) {
    float weights[4][4];
    block.make_scores(weights, key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float here =
          row_max(fmaxf(fmaxf(weights[i][0], weights[i][1]), fmaxf(weights[i][2], weights[i][3])));
      const float now = fmaxf(most[i], here);
      const float base = now == -INFINITY ? 0.0f : now;
      const float shrink = expf(most[i] - base);
      most[i] = now;
      float added = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        weights[i][j] = expf(weights[i][j] - base);
        added += weights[i][j];
      }
      total[i] = fmaf(total[i], shrink, row_sum(added));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[part][i][j] *= shrink;
      }
    }
    if (call.dropout.given) {
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
          const bool kept = keeper.keeps(query + tile_row(i), key + tile_column(j));
          shared().weights[tile_row(i)][tile_column(j)] = kept ? call.dropout.factor : 0.0f;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) weights[i][j] *= shared().weights[tile_row(i)][tile_column(j)];
      }
    }
    store_weights(weights);
    multiply_columns<kParts>(sums, block.other(call.v, key), column);
  }

  float factors[4], log_sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool none = total[i] == 0;
    factors[i] = none ? 0.0f : 1 / total[i];
    log_sums[i] = none ? -INFINITY : most[i] + logf(total[i]);
  }
  const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.queries + query;
  store<kParts>(call.out.at(row, head, sizes.head_size), call.out.stride, sizes.queries - query,
                sizes.head_size, column, sums, factors);
  if (column != 0) return;
  if (thread_x() == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = query + tile_row(i);
      if (place < sizes.queries) {
        call.log_sum[query_place(sizes, sequence, head, place)] = log_sums[i];
      }
    }
  }
  if (call.probabilities != nullptr) block.write_probabilities(log_sums);
}

}  // namespace
}  // namespace lockstep::cuda::attention::plain

namespace lockstep::cuda::attention {

void run_plain(const Context& context, const ops::Attention& call) {
  using namespace plain;
  const std::int64_t size = call.shape.head_size;
  const Sizes sizes = sizes_of(call.shape);
  with_compute_type(call.shape.dtype, [&]<class T>(T) {
    const ForwardCall<T> arguments{
        .sizes = sizes,
        .q = head_rows<const T>(call.q),
        .k = head_rows<const T>(call.k),
        .v = head_rows<const T>(call.v),
        .out = head_rows<T>(call.out),
        .mask = mask_of(call.key_mask),
        .dropout = dropout_key(call.dropout),
        .log_sum = reinterpret_cast<float*>(call.log_sum.data()),
        .probabilities = ops::is_given(call.probabilities)
                             ? reinterpret_cast<float*>(call.probabilities.data())
                             : nullptr,
        .scale = call.scale,
        .softcap = call.softcap,
        .bias = distance_bias(call.shape, call.bias),
        .in_fours =
            aligned(call.q, size, 4) && aligned(call.k, size, 4) && aligned(call.v, size, 4)};
    with_parts(size, [&]<int kParts>(std::integral_constant<int, kParts>) {
      const std::int64_t blocks = call.shape.batch * call.shape.heads *
                                  tiles_of(sizes.queries, kSide) *
                                  tiles_of(sizes.head_size, kParts * kSide);
      with_bias(call.shape, [&]<bool kBiased>(std::bool_constant<kBiased>) {
        launch<ForwardCall<T>>("attention_plain_forward", plain_forward_kernel<T, kParts, kBiased>,
                               blocks, kThreads, sizeof(Shared), context.stream, arguments);
      });
    });
  });
}

}  // namespace lockstep::cuda::attention
