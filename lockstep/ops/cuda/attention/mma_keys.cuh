// dk and dv with tensor cores. Warps own keys with their values. They walk over tiles of queries
// with dout and statistics, through all query heads that share the key head. Shared memory holds
// two such tiles: one arrives while the other is used. Rows are keys here, so scores are
// transposed.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/mma_backward.cuh"

namespace lockstep::cuda::attention::mma {

// Registers hold two sums, dk and dv: 32 rows of both fit where heads have up to 64 elements.
template <int kHeadSize>
struct KeysTiles {
  static constexpr int kM = kHeadSize <= 64 ? 2 : 1;
  static constexpr int kWarps = kHeadSize <= 64 ? 4 : 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kKeys = 16 * kM * kWarps;
  static constexpr int kQueries = kHeadSize <= 64 ? 32 : 64;
  static constexpr int kBlocks = kHeadSize <= 64 ? 2 : 1;  // per multiprocessor, by registers
  static constexpr int kSharedBytes =
      (2 * kKeys + 4 * kQueries) * kStride<kHeadSize> * 2 + 4 * kQueries * 4;
};

template <class T, int kHeadSize, Scores kScores>
__global__ void __launch_bounds__(KeysTiles<kHeadSize>::kThreads, KeysTiles<kHeadSize>::kBlocks)
    keys_kernel(BackwardCall<T> call) {
  using Tiles = KeysTiles<kHeadSize>;
  constexpr int kM = Tiles::kM, kN = Tiles::kQueries / 8, kRow = kStride<kHeadSize>;
  constexpr bool kDropout = are_dropped(kScores);
  constexpr bool kCapped = kScores == Scores::kCapped;
  constexpr bool kBiased = are_biased(kScores);
  const Sizes& sizes = call.sizes;
  T* k = reinterpret_cast<T*>(dynamic_shared());
  T* v = k + Tiles::kKeys * kRow;
  T* stages = v + Tiles::kKeys * kRow;
  constexpr int kStage = 2 * Tiles::kQueries * kRow;  // queries, then dout
  auto* statistics = reinterpret_cast<float*>(stages + 2 * kStage);
  constexpr int kStatistics = 2 * Tiles::kQueries;  // of a stage: log2_sum, then delta

  const int key_tiles = tiles_of(sizes.keys, Tiles::kKeys);
  // In causal attention most queries attend to early keys, so these come first.
  const int key = static_cast<int>(blockIdx.x % key_tiles) * Tiles::kKeys;
  const int kv_head = static_cast<int>(blockIdx.x / key_tiles % sizes.kv_heads);
  const int sequence = static_cast<int>(blockIdx.x / key_tiles / sizes.kv_heads);
  const int row = key + warp_of() * 16 * kM;  // the warp's first
  T* k_warp = k + warp_of() * 16 * kM * kRow;
  T* v_warp = v + warp_of() * 16 * kM * kRow;

  // Tiles of queries, `per_head` for every query head, one head after the other. Tiles before the
  // first, and behind the last, attend to none of the keys.
  const int first = key > sizes.reach ? (key - sizes.reach) / Tiles::kQueries : 0;
  const int query_tiles = tiles_of(queries_seeing(sizes, key + Tiles::kKeys), Tiles::kQueries);
  const int per_head = query_tiles > first ? query_tiles - first : 0;
  const int turns = per_head * sizes.group;

  const auto load_stage = [&](int stage, int head, int query) {
    T* to = stages + stage * kStage;
    const std::int64_t first_row = static_cast<std::int64_t>(sequence) * sizes.queries + query;
    load_rows<Tiles::kQueries, kHeadSize, Tiles::kThreads>(
        to, call.q.at(first_row, head, sizes.head_size), call.q.stride, sizes.queries - query,
        sizes.head_size, nullptr);
    load_rows<Tiles::kQueries, kHeadSize, Tiles::kThreads>(
        to + Tiles::kQueries * kRow, call.dout.at(first_row, head, sizes.head_size),
        call.dout.stride, sizes.queries - query, sizes.head_size, nullptr);
    const int i = static_cast<int>(threadIdx.x);
    if (i >= kStatistics) return;
    const int place = i % Tiles::kQueries;
    const float* from = i < Tiles::kQueries ? call.statistics.log2_sum : call.statistics.delta;
    const bool there = query + place < sizes.queries;
    copy_4_async(statistics + stage * kStatistics + i,
                 from + query_place(sizes, sequence, head, there ? query + place : 0), there);
  };

  float dk[kM][kHeadSize / 8][4], dv[kM][kHeadSize / 8][4];
  set_zero(dk);
  set_zero(dv);
  int head = kv_head * sizes.group;
  int tile = first;
  if (turns > 0) {
    const std::int64_t first_row = static_cast<std::int64_t>(sequence) * sizes.keys + key;
    const std::uint8_t* mask = mask_at(call.mask, sizes, sequence, key);
    load_rows<Tiles::kKeys, kHeadSize, Tiles::kThreads>(
        k, call.k.at(first_row, kv_head, sizes.head_size), call.k.stride, sizes.keys - key,
        sizes.head_size, mask);
    load_rows<Tiles::kKeys, kHeadSize, Tiles::kThreads>(
        v, call.v.at(first_row, kv_head, sizes.head_size), call.v.stride, sizes.keys - key,
        sizes.head_size, mask);
    load_stage(0, head, tile * Tiles::kQueries);
  }
  for (int turn = 0; turn < turns; ++turn) {
    const int query = tile * Tiles::kQueries;
    const int query_head = head;
    if (++tile == query_tiles) {
      tile = first;
      ++head;
    }
    const int stage = turn % 2;
    wait_for_copies();
    __syncthreads();  // this stage has arrived; the other is not read any more
    if (turn + 1 < turns) load_stage(stage ^ 1, head, tile * Tiles::kQueries);
    if (!meet(sizes, query, Tiles::kQueries, row, 16 * kM)) continue;
    const T* q = stages + stage * kStage;
    const T* dout = q + Tiles::kQueries * kRow;
    const float* log2_sums = statistics + stage * kStatistics;
    const float* deltas = log2_sums + Tiles::kQueries;
    float p[kM][kN][4], dp[kM][kN][4];
    multiply_rows<kHeadSize>(p, k_warp, q);
    if constexpr (kCapped) call.cap.cap(p);
    if constexpr (kBiased) {
      add_biases<true>(p, call.bias, call.one_by_scale, query_head, row, query);
    }
    multiply_rows<kHeadSize>(dp, v_warp, dout);
    const bool hides_some =
        row + 16 * kM - 1 > query + sizes.reach || row < query + Tiles::kQueries - 1 + sizes.first;
    const Keeper keeper(call.dropout, sizes, sequence, query_head);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const float2 log2_sum = *reinterpret_cast<const float2*>(log2_sums + 8 * j + lane_column());
      const float2 delta = *reinterpret_cast<const float2*>(deltas + 8 * j + lane_column());
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        std::uint32_t kept = 15;
        if constexpr (kDropout) kept = kept_of_keys(keeper, query + 8 * j, row + 16 * i);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float subtract = e % 2 == 0 ? log2_sum.x : log2_sum.y;
          const float slope = kCapped ? call.cap.slope(p[i][j][e]) : 1.0f;
          p[i][j][e] = fast_exp2(fmaf(p[i][j][e], call.scale_log2, -subtract));
          if (hides_some) {
            const int at = row + 16 * i + 8 * (e / 2) + lane_row();
            if (!attends(sizes, query + 8 * j + lane_column() + e % 2, at)) p[i][j][e] = 0;
          }
          make_gradient<kDropout>(p[i][j][e], dp[i][j][e], e % 2 == 0 ? delta.x : delta.y,
                                  (kept >> e & 1) != 0, call.dropout.factor);
          if constexpr (kCapped) dp[i][j][e] *= slope;
        }
      }
    }
    std::uint32_t weights[kM][kN / 2][4];
    round_to<T>(weights, p);
    multiply_columns<kHeadSize>(dv, weights, dout);
    round_to<T>(weights, dp);
    multiply_columns<kHeadSize>(dk, weights, q);
  }

  // Rows of masked keys hold undefined values here; their gradients are 0.
  float dk_factors[kM][2], dv_factors[kM][2];
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      dk_factors[i][half] = call.scale;
      dv_factors[i][half] = kDropout ? call.dropout.factor : 1.0f;
      const int place = row + 16 * i + 8 * half + lane_row();
      const std::uint8_t* mask = mask_at(call.mask, sizes, sequence, place);
      if (mask == nullptr || place >= sizes.keys || *mask != 0) continue;
#pragma unroll
      for (int j = 0; j < kHeadSize / 8; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) dk[i][j][e] = dv[i][j][e] = 0;
      }
    }
  }
  const std::int64_t warp_row = static_cast<std::int64_t>(sequence) * sizes.keys + row;
  store_rows<kHeadSize>(call.dk.at(warp_row, kv_head, sizes.head_size), call.dk.stride,
                        sizes.keys - row, sizes.head_size, dk, dk_factors, k_warp);
  store_rows<kHeadSize>(call.dv.at(warp_row, kv_head, sizes.head_size), call.dv.stride,
                        sizes.keys - row, sizes.head_size, dv, dv_factors, v_warp);
}

}  // namespace lockstep::cuda::attention::mma
