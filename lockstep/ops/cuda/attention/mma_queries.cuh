// dq with tensor cores. Four warps own 32 queries each, with dout, and walk over tiles of keys and
// values. Shared memory holds two such tiles: one arrives while the other is used. With a bias it
// also holds what the warps need to sum gradients by distance.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/mma_backward.cuh"

namespace lockstep::cuda::attention::mma {

template <int kHeadSize>
struct QueriesTiles {
  static constexpr int kM = 2;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = kHeadSize <= 64 ? 64 : 32;
  static constexpr int kTileBytes = (2 * kQueries + 4 * kKeys) * kStride<kHeadSize> * 2;
  using BiasSums = WarpBiasSums<kM, kKeys / 8>;
  static_assert(kWarps == kBlockStrips && 16 * kM == kStripQueries);

  static constexpr int shared_bytes(bool biased) {
    return kTileBytes + (biased ? kWarps * BiasSums::kSharedBytes : 0);
  }
};

template <class T, int kHeadSize, Scores kScores>
__global__ void __launch_bounds__(QueriesTiles<kHeadSize>::kThreads, 2)
    queries_kernel(BackwardCall<T> call) {
  using Tiles = QueriesTiles<kHeadSize>;
  constexpr int kM = Tiles::kM, kN = Tiles::kKeys / 8, kRow = kStride<kHeadSize>;
  constexpr bool kDropout = are_dropped(kScores);
  constexpr bool kCapped = kScores == Scores::kCapped;
  constexpr bool kBiased = are_biased(kScores);
  const Sizes& sizes = call.sizes;
  T* q = reinterpret_cast<T*>(dynamic_shared());
  T* dout = q + Tiles::kQueries * kRow;
  T* stages = dout + Tiles::kQueries * kRow;
  constexpr int kStage = 2 * Tiles::kKeys * kRow;  // keys, then values

  const int tiles = tiles_of(sizes.queries, Tiles::kQueries);
  const int query = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * Tiles::kQueries;
  const int head = static_cast<int>(blockIdx.x / tiles % sizes.heads);
  const int sequence = static_cast<int>(blockIdx.x / tiles / sizes.heads);
  const int kv_head = head / sizes.group;
  const int row = query + warp_of() * 16 * kM;  // the warp's first
  T* q_warp = q + warp_of() * 16 * kM * kRow;
  const T* dout_warp = dout + warp_of() * 16 * kM * kRow;

  const std::int64_t first_query = static_cast<std::int64_t>(sequence) * sizes.queries + query;
  const std::int64_t first_key = static_cast<std::int64_t>(sequence) * sizes.keys;
  const T* k_from = call.k.at(first_key, kv_head, sizes.head_size);
  const T* v_from = call.v.at(first_key, kv_head, sizes.head_size);
  const std::uint8_t* mask = mask_at(call.mask, sizes, sequence, 0);
  const auto load_stage = [&](int stage, int key) {
    T* k = stages + stage * kStage;
    const std::uint8_t* shown = mask == nullptr ? nullptr : mask + key;
    load_rows<Tiles::kKeys, kHeadSize, Tiles::kThreads>(
        k, k_from + key * call.k.stride, call.k.stride, sizes.keys - key, sizes.head_size, shown);
    load_rows<Tiles::kKeys, kHeadSize, Tiles::kThreads>(k + Tiles::kKeys * kRow,
                                                        v_from + key * call.v.stride, call.v.stride,
                                                        sizes.keys - key, sizes.head_size, shown);
  };

  float log2_sums[kM][2], deltas[kM][2];
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = row + 16 * i + 8 * half + lane_row();
      const bool there = place < sizes.queries;
      const std::int64_t at = query_place(sizes, sequence, head, there ? place : 0);
      log2_sums[i][half] = there ? call.statistics.log2_sum[at] : INFINITY;
      deltas[i][half] = there ? call.statistics.delta[at] : 0.0f;
    }
  }

  float sums[kM][kHeadSize / 8][4];
  set_zero(sums);
  const Keeper keeper(call.dropout, sizes, sequence, head);
  typename Tiles::BiasSums bias_sums(
      BiasRow(call.bias_sums, call.bias, sizes, sequence, head, row / kStripQueries),
      reinterpret_cast<float*>(dynamic_shared() + Tiles::kTileBytes));
  if constexpr (kBiased) bias_sums.clear();
  const int first = first_seen(sizes, query) / Tiles::kKeys * Tiles::kKeys;
  const int keys = keys_seen(sizes, query + Tiles::kQueries);
  if (keys > first) {
    load_rows<Tiles::kQueries, kHeadSize, Tiles::kThreads>(
        q, call.q.at(first_query, head, sizes.head_size), call.q.stride, sizes.queries - query,
        sizes.head_size, nullptr);
    load_rows<Tiles::kQueries, kHeadSize, Tiles::kThreads>(
        dout, call.dout.at(first_query, head, sizes.head_size), call.dout.stride,
        sizes.queries - query, sizes.head_size, nullptr);
    load_stage(0, first);
  }
  int stage = 0;
  for (int key = first; key < keys; key += Tiles::kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // this stage has arrived; the other is not read any more
    if (key + Tiles::kKeys < keys) load_stage(stage ^ 1, key + Tiles::kKeys);
    if (!meet(sizes, row, 16 * kM, key, Tiles::kKeys)) continue;
    const T* k = stages + stage * kStage;
    const T* v = k + Tiles::kKeys * kRow;
    float p[kM][kN][4], dp[kM][kN][4];
    multiply_rows<kHeadSize>(p, q_warp, k);
    if constexpr (kCapped) call.cap.cap(p);
    if constexpr (kBiased) add_biases<false>(p, call.bias, call.one_by_scale, head, row, key);
    multiply_rows<kHeadSize>(dp, dout_warp, v);
    if (hides(sizes, mask, row, 16 * kM, key, Tiles::kKeys)) {
      hide(p, sizes, mask == nullptr ? nullptr : mask + key, row, key);
    }
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        std::uint32_t kept = 15;
        if constexpr (kDropout) kept = kept_of_queries(keeper, row + 16 * i, key + 8 * j);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float slope = kCapped ? call.cap.slope(p[i][j][e]) : 1.0f;
          p[i][j][e] = fast_exp2(fmaf(p[i][j][e], call.scale_log2, -log2_sums[i][e / 2]));
          make_gradient<kDropout>(p[i][j][e], dp[i][j][e], deltas[i][e / 2], (kept >> e & 1) != 0,
                                  call.dropout.factor);
          if constexpr (kCapped) dp[i][j][e] *= slope;
        }
      }
    }
    if constexpr (kBiased) bias_sums.add(dp, row, key);
    std::uint32_t weights[kM][kN / 2][4];
    round_to<T>(weights, dp);
    multiply_columns<kHeadSize>(sums, weights, k);
  }
  if constexpr (kBiased) bias_sums.finish();

  float factors[kM][2];
#pragma unroll
  for (auto& factor : factors) factor[0] = factor[1] = call.scale;
  const std::int64_t warp_row = static_cast<std::int64_t>(sequence) * sizes.queries + row;
  store_rows<kHeadSize>(call.dq.at(warp_row, head, sizes.head_size), call.dq.stride,
                        sizes.queries - row, sizes.head_size, sums, factors, q_warp);
}

}  // namespace lockstep::cuda::attention::mma
