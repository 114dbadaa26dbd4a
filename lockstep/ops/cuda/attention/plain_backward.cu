// One kernel computes dq by blocks of queries, another dk and dv by blocks of keys. Both recompute
// the probabilities from log_sum. So one thread computes every sum, in one order. The kernel for dq
// also sums the gradients of scores by distance (bias_sums.h).
#include "lockstep/ops/cuda/attention/bias_sums.cuh"
#include "lockstep/ops/cuda/attention/plain.h"
#include "lockstep/ops/cuda/attention/plain_tile.cuh"
#include "lockstep/ops/cuda/attention/statistics.h"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/elementwise/soft_cap.cuh"

namespace lockstep::cuda::attention::plain {
namespace {

template <class T>
struct BackwardCall {
  Sizes sizes;
  HeadRows<const T> q, k, v, dout;
  HeadRows<T> dq, dk, dv;
  const std::uint8_t* mask = nullptr;
  DropoutKey dropout;
  const float* log_sum = nullptr;
  const float* delta = nullptr;
  float scale = 1;
  float softcap = 0;  // 0: none
  DistanceBias bias;
  BiasSums bias_sums;  // a strip is a block of queries
  bool in_fours = false;

  __device__ __forceinline__ Strip<T> queries(const HeadRows<const T>& rows, int sequence, int head,
                                              int query) const {
    const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.queries + query;
    return {.first = rows.at(row, head, sizes.head_size),
            .stride = rows.stride,
            .rows = sizes.queries - query,
            .head_size = sizes.head_size,
            .in_fours = in_fours};
  }
  __device__ __forceinline__ Strip<T> keys(const HeadRows<const T>& rows, int sequence, int kv_head,
                                           int key) const {
    const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.keys + key;
    return {.first = rows.at(row, kv_head, sizes.head_size),
            .stride = rows.stride,
            .rows = sizes.keys - key,
            .head_size = sizes.head_size,
            .mask = mask_at(mask, sizes, sequence, key),
            .in_fours = in_fours};
  }
};

// A tile of 64 queries and 64 keys: from the products of rows to the weights of the second
// products. kKeysAreRows: the rows of the tile are keys.
template <class T, bool kKeysAreRows, bool kBiased>
struct Meeting {
  const BackwardCall<T>& call;
  int sequence, head, query, key;

  // The query or key of an element of the tile, from the first of the tile on.
  __device__ __forceinline__ int query_at(int i, int j) const {
    return kKeysAreRows ? tile_column(j) : tile_row(i);
  }
  __device__ __forceinline__ int key_at(int i, int j) const {
    return kKeysAreRows ? tile_row(i) : tile_column(j);
  }

  // Loads log_sum and delta of the queries into shared memory. All threads have read those of the
  // previous tile: the barriers of its second products came since.
  __device__ __forceinline__ void load_statistics() const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= kSide) return;
    const bool there = query + i < call.sizes.queries;
    const std::int64_t place = query_place(call.sizes, sequence, head, query + i);
    shared().log_sum[i] = there ? call.log_sum[place] : 0.0f;
    shared().delta[i] = there ? call.delta[place] : 0.0f;
  }

  // Replaces products by probabilities, 0 where a query does not attend to a key.
  __device__ __forceinline__ void make_probabilities(float (&scores)[4][4]) const {
    const Sizes& sizes = call.sizes;
    const std::uint8_t* mask = mask_at(call.mask, sizes, sequence, key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int q = query_at(i, j), k = key_at(i, j);
        const bool seen = query + q < sizes.queries && key + k < sizes.keys &&
                          attends(sizes, query + q, key + k) && (mask == nullptr || mask[k] != 0);
        float score = scores[i][j] * call.scale;
        if (call.softcap > 0) score = soft_cap(score, call.softcap);
        if constexpr (kBiased) score += call.bias.at(head, query + q, key + k);
        scores[i][j] = seen ? expf(score - shared().log_sum[q]) : 0.0f;
      }
    }
  }

  // The slope of the soft cap, where there is one, at the score of a probability. Taking the score
  // from it saves the registers of a tile.
  __device__ __forceinline__ float slope_at(float probability, int q) const {
    if (call.softcap == 0) return 1;
    return soft_cap_slope(logf(probability) + shared().log_sum[q], call.softcap);
  }

  // Stores the dropout factors of the probabilities in the place of the weights.
  __device__ __forceinline__ void store_kept() const {
    const Keeper keeper(call.dropout, call.sizes, sequence, head);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
        const bool kept = keeper.keeps(query + query_at(i, j), key + key_at(i, j));
        shared().weights[tile_row(i)][tile_column(j)] = kept ? call.dropout.factor : 0.0f;
      }
    }
  }

  // Replaces dp by the gradient of the scores before scaling. With kWeights it replaces p by the
  // weights of dv.
  template <bool kWeights>
  __device__ __forceinline__ void make_gradients(float (&p)[4][4], float (&dp)[4][4]) const {
    if (call.dropout.given) store_kept();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float kept =
            call.dropout.given ? shared().weights[tile_row(i)][tile_column(j)] : 1.0f;
        const int q = query_at(i, j);
        dp[i][j] = p[i][j] * (dp[i][j] * kept - shared().delta[q]) * slope_at(p[i][j], q);
        if (kWeights) p[i][j] *= kept;
      }
    }
  }
};

// Adds a tile of gradients of scores to the sums of the block's queries by distance. The gradients
// are the weights in shared memory, which all threads have stored. 127 threads have a diagonal of
// the tile each, which is a distance. The barriers of the next tile's products come before the next
// call, and before the weights change.
__device__ __forceinline__ void add_diagonals(BiasRow& sums, int query, int key) {
  const int diagonal = static_cast<int>(threadIdx.x) - (kSide - 1);
  if (diagonal >= kSide) return;
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < kSide; ++i) {
    const int column = i + diagonal;
    if (column >= 0 && column < kSide) sum += shared().weights[i][column];
  }
  sums.add(sums.bias.distance(query, key + diagonal), sum);
}

__device__ __forceinline__ void finish(const BiasRow& sums) {
  const float before = block_sum(sums.before, shared().log_sum);
  const float behind = block_sum(sums.behind, shared().log_sum);
  if (threadIdx.x == 0) sums.finish(before, behind);
}

template <class T, int kParts, bool kBiased>
__global__ void __launch_bounds__(kThreads, 2) plain_queries_kernel(BackwardCall<T> call) {
  const Sizes& sizes = call.sizes;
  const int column_blocks = tiles_of(sizes.head_size, kParts * kSide);
  const int tiles = tiles_of(sizes.queries, kSide);
  unsigned at = blockIdx.x;
  const int column = static_cast<int>(at % column_blocks) * kParts * kSide;
  at /= column_blocks;
  const int query = (tiles - 1 - static_cast<int>(at % tiles)) * kSide;
  at /= tiles;
  const int head = static_cast<int>(at % sizes.heads);
  const int sequence = static_cast<int>(at / sizes.heads);
  const int kv_head = head / sizes.group;

  const Strip<T> q = call.queries(call.q, sequence, head, query);
  const Strip<T> dout = call.queries(call.dout, sequence, head, query);
  Meeting<T, false, kBiased> meeting{call, sequence, head, query, 0};
  meeting.load_statistics();
  float sums[kParts][4][4];
  set_zero(sums);
  // Blocks of other columns of the same heads have the same gradients of scores.
  const bool sums_biases = kBiased && column == 0;
  BiasRow bias_sums(call.bias_sums, call.bias, sizes, sequence, head, query / kSide);
  if (sums_biases) bias_sums.clear(static_cast<int>(threadIdx.x), kThreads);
  const int keys = keys_seen(sizes, query + kSide);
  for (int key = first_seen(sizes, query) / kSide * kSide; key < keys; key += kSide) {
    meeting.key = key;
    const Strip<T> k = call.keys(call.k, sequence, kv_head, key);
    float p[4][4], dp[4][4];
    multiply_rows(p, q, k);
    meeting.make_probabilities(p);
    multiply_rows(dp, dout, call.keys(call.v, sequence, kv_head, key));
    meeting.template make_gradients<false>(p, dp);
    store_weights(dp);
    multiply_columns<kParts>(sums, k, column);
    if (sums_biases) add_diagonals(bias_sums, query, key);
  }
  if (sums_biases) finish(bias_sums);
  const float factors[4] = {call.scale, call.scale, call.scale, call.scale};
  const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.queries + query;
  store<kParts>(call.dq.at(row, head, sizes.head_size), call.dq.stride, sizes.queries - query,
                sizes.head_size, column, sums, factors);
}

template <class T, int kParts, bool kBiased>
__global__ void __launch_bounds__(kThreads, kParts == 1 ? 2 : 1)
    plain_keys_kernel(BackwardCall<T> call) {
  const Sizes& sizes = call.sizes;
  const int column_blocks = tiles_of(sizes.head_size, kParts * kSide);
  const int tiles = tiles_of(sizes.keys, kSide);
  unsigned at = blockIdx.x;
  const int column = static_cast<int>(at % column_blocks) * kParts * kSide;
  at /= column_blocks;
  // In causal attention most queries attend to early keys, so these come first.
  const int key = static_cast<int>(at % tiles) * kSide;
  at /= tiles;
  const int kv_head = static_cast<int>(at % sizes.kv_heads);
  const int sequence = static_cast<int>(at / sizes.kv_heads);

  const Strip<T> k = call.keys(call.k, sequence, kv_head, key);
  const Strip<T> v = call.keys(call.v, sequence, kv_head, key);
  float dk[kParts][4][4], dv[kParts][4][4];
  set_zero(dk);
  set_zero(dv);
  // Queries before this one, and from the end on, attend to none of the keys.
  const int first = key > sizes.reach ? (key - sizes.reach) / kSide * kSide : 0;
  const int end = queries_seeing(sizes, key + kSide);
  for (int head = kv_head * sizes.group; head < (kv_head + 1) * sizes.group; ++head) {
    for (int query = first; query < end; query += kSide) {
      const Meeting<T, true, kBiased> meeting{call, sequence, head, query, key};
      const Strip<T> q = call.queries(call.q, sequence, head, query);
      const Strip<T> dout = call.queries(call.dout, sequence, head, query);
      meeting.load_statistics();
      float p[4][4], dp[4][4];
      multiply_rows(p, k, q);
      meeting.make_probabilities(p);
      multiply_rows(dp, v, dout);
      meeting.template make_gradients<true>(p, dp);
      store_weights(p);
      multiply_columns<kParts>(dv, dout, column);
      __syncthreads();
      store_weights(dp);
      multiply_columns<kParts>(dk, q, column);
    }
  }
  const float scales[4] = {call.scale, call.scale, call.scale, call.scale};
  const float ones[4] = {1, 1, 1, 1};
  const std::int64_t row = static_cast<std::int64_t>(sequence) * sizes.keys + key;
  store<kParts>(call.dk.at(row, kv_head, sizes.head_size), call.dk.stride, sizes.keys - key,
                sizes.head_size, column, dk, scales);
  store<kParts>(call.dv.at(row, kv_head, sizes.head_size), call.dv.stride, sizes.keys - key,
                sizes.head_size, column, dv, ones);
}

}  // namespace
}  // namespace lockstep::cuda::attention::plain

namespace lockstep::cuda::attention {

void run_plain(const Context& context, const ops::AttentionBackward& call) {
  using namespace plain;
  const Statistics statistics = prepare_statistics(context, call);
  const std::int64_t size = call.shape.head_size;
  const Sizes sizes = sizes_of(call.shape);
  const BiasSums sums = bias_sums(context, call, tiles_of(sizes.queries, kSide));
  with_compute_type(call.shape.dtype, [&]<class T>(T) {
    const BackwardCall<T> arguments{
        .sizes = sizes,
        .q = head_rows<const T>(call.q),
        .k = head_rows<const T>(call.k),
        .v = head_rows<const T>(call.v),
        .dout = head_rows<const T>(call.dout),
        .dq = head_rows<T>(call.dq),
        .dk = head_rows<T>(call.dk),
        .dv = head_rows<T>(call.dv),
        .mask = mask_of(call.key_mask),
        .dropout = dropout_key(call.dropout),
        .log_sum = reinterpret_cast<const float*>(call.log_sum.data()),
        .delta = statistics.delta,
        .scale = call.scale,
        .softcap = call.softcap,
        .bias = distance_bias(call.shape, call.bias),
        .bias_sums = sums,
        .in_fours = aligned(call.q, size, 4) && aligned(call.k, size, 4) &&
                    aligned(call.v, size, 4) && aligned({call.dout, 0}, size, 4)};
    with_parts(size, [&]<int kParts>(std::integral_constant<int, kParts>) {
      const std::int64_t column_blocks = tiles_of(sizes.head_size, kParts * kSide);
      const std::int64_t query_blocks =
          call.shape.batch * call.shape.heads * tiles_of(sizes.queries, kSide) * column_blocks;
      const std::int64_t key_blocks =
          call.shape.batch * call.shape.kv_heads * tiles_of(sizes.keys, kSide) * column_blocks;
      with_bias(call.shape, [&]<bool kBiased>(std::bool_constant<kBiased>) {
        launch<BackwardCall<T>>("attention_plain_dq", plain_queries_kernel<T, kParts, kBiased>,
                                query_blocks, kThreads, sizeof(Shared), context.stream, arguments);
        launch<BackwardCall<T>>("attention_plain_dk_dv", plain_keys_kernel<T, kParts, kBiased>,
                                key_blocks, kThreads, sizeof(Shared), context.stream, arguments);
      });
    });
  });
  merge_bias_sums(context, call, sums);
}

}  // namespace lockstep::cuda::attention
