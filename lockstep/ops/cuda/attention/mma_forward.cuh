// Forward with tensor cores: four warps own 32 queries each and walk over the keys 64 at a time.
// Keys and values have one tile each in shared memory: values arrive while scores are computed, the
// next keys while values are summed.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/mma_bias.cuh"
#include "lockstep/ops/cuda/attention/mma_tile.cuh"

namespace lockstep::cuda::attention::mma {

template <class T>
struct ForwardCall {
  Sizes sizes;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  const std::uint8_t* mask = nullptr;
  DropoutKey dropout;
  float* log_sum = nullptr;
  float scale_log2 = 1;  // from products to scores in units of log 2; above 0
  ProductCap cap;
  DistanceBias bias;
  float one_by_scale = 1;
};

template <int kHeadSize>
struct ForwardTiles {
  static constexpr int kM = 2;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = 64;
  static constexpr int kSharedBytes = (kQueries + 2 * kKeys) * kStride<kHeadSize> * 2;
};

// The running maximum and sum of exponentials of a lane's rows; the sum is over the lane's own
// columns until finish().
template <int kM>
struct RunningSoftmax {
  float most[kM][2];  // of the products before scaling
  float total[kM][2];

  __device__ __forceinline__ RunningSoftmax() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[i][half] = -INFINITY;
        total[i][half] = 0;
      }
    }
  }

  __device__ __forceinline__ float base(int i, int half, float scale_log2) const {
    return most[i][half] == -INFINITY ? 0.0f : most[i][half] * scale_log2;
  }

  // Replaces scores by exponentials and rescales the sums so far to the new maximum.
  template <int kN, int kColumns>
  __device__ __forceinline__ void add(float (&scores)[kM][kN][4], float (&sums)[kM][kColumns][4],
                                      float scale_log2) {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float here = -INFINITY;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          here = fmaxf(here, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
        }
        here = fmaxf(here, __shfl_xor_sync(kAllLanes, here, 1));
        here = fmaxf(here, __shfl_xor_sync(kAllLanes, here, 2));
        const float before = most[i][half];
        most[i][half] = fmaxf(before, here);
        const float subtract = base(i, half, scale_log2);
        const float shrink = fast_exp2(before * scale_log2 - subtract);
        float added = 0;
#pragma unroll
        for (int j = 0; j < kN; ++j) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[i][j][e] = fast_exp2(fmaf(scores[i][j][e], scale_log2, -subtract));
            added += scores[i][j][e];
          }
        }
        total[i][half] = fmaf(total[i][half], shrink, added);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          sums[i][j][2 * half] *= shrink;
          sums[i][j][2 * half + 1] *= shrink;
        }
      }
    }
  }

  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        total[i][half] += __shfl_xor_sync(kAllLanes, total[i][half], 1);
        total[i][half] += __shfl_xor_sync(kAllLanes, total[i][half], 2);
      }
    }
  }
};

template <class T, int kHeadSize, Scores kScores>
__global__ void __launch_bounds__(ForwardTiles<kHeadSize>::kThreads, 2)
    forward_kernel(ForwardCall<T> call) {
  using Tiles = ForwardTiles<kHeadSize>;
  constexpr int kM = Tiles::kM, kN = Tiles::kKeys / 8, kRow = kStride<kHeadSize>;
  constexpr bool kDropout = are_dropped(kScores);
  constexpr bool kCapped = kScores == Scores::kCapped;
  constexpr bool kBiased = are_biased(kScores);
  const Sizes& sizes = call.sizes;
  T* q = reinterpret_cast<T*>(dynamic_shared());
  T* k = q + Tiles::kQueries * kRow;
  T* v = k + Tiles::kKeys * kRow;

  const int tiles = tiles_of(sizes.queries, Tiles::kQueries);
  // In causal attention late queries attend to most keys, so they come first.
  const int query = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * Tiles::kQueries;
  const int head = static_cast<int>(blockIdx.x / tiles % sizes.heads);
  const int sequence = static_cast<int>(blockIdx.x / tiles / sizes.heads);
  const int kv_head = head / sizes.group;
  const int row = query + warp_of() * 16 * kM;  // the warp's first
  T* q_warp = q + warp_of() * 16 * kM * kRow;

  const std::int64_t first_query = static_cast<std::int64_t>(sequence) * sizes.queries + query;
  const std::int64_t first_key = static_cast<std::int64_t>(sequence) * sizes.keys;
  const T* k_from = call.k.at(first_key, kv_head, sizes.head_size);
  const T* v_from = call.v.at(first_key, kv_head, sizes.head_size);
  const std::uint8_t* mask = mask_at(call.mask, sizes, sequence, 0);
  const auto load_keys = [&](T* to, const T* from, std::int64_t stride, int key) {
    load_rows<Tiles::kKeys, kHeadSize, Tiles::kThreads>(to, from + key * stride, stride,
                                                        sizes.keys - key, sizes.head_size,
                                                        mask == nullptr ? nullptr : mask + key);
  };

  float sums[kM][kHeadSize / 8][4];
  set_zero(sums);
  RunningSoftmax<kM> softmax;
  const Keeper keeper(call.dropout, sizes, sequence, head);
  const int first = first_seen(sizes, query) / Tiles::kKeys * Tiles::kKeys;
  const int keys = keys_seen(sizes, query + Tiles::kQueries);
  if (keys > first) {
    load_rows<Tiles::kQueries, kHeadSize, Tiles::kThreads>(
        q, call.q.at(first_query, head, sizes.head_size), call.q.stride, sizes.queries - query,
        sizes.head_size, nullptr);
    load_keys(k, k_from, call.k.stride, first);
  }
  for (int key = first; key < keys; key += Tiles::kKeys) {
    wait_for_copies();
    __syncthreads();  // keys have arrived; the previous values are not read any more
    load_keys(v, v_from, call.v.stride, key);
    const bool sees = meet(sizes, row, 16 * kM, key, Tiles::kKeys);
    std::uint32_t weights[kM][kN / 2][4];
    if (sees) {
      float scores[kM][kN][4];
      multiply_rows<kHeadSize>(scores, q_warp, k);
      if constexpr (kCapped) call.cap.cap(scores);
      if constexpr (kBiased) {
        add_biases<false>(scores, call.bias, call.one_by_scale, head, row, key);
      }
      if (hides(sizes, mask, row, 16 * kM, key, Tiles::kKeys)) {
        hide(scores, sizes, mask == nullptr ? nullptr : mask + key, row, key);
      }
      softmax.add(scores, sums, call.scale_log2);
      if constexpr (kDropout) {
#pragma unroll
        for (int i = 0; i < kM; ++i) {
#pragma unroll
          for (int j = 0; j < kN; ++j) {
            const std::uint32_t kept = kept_of_queries(keeper, row + 16 * i, key + 8 * j);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if ((kept >> e & 1) == 0) scores[i][j][e] = 0;
            }
          }
        }
      }
      round_to<T>(weights, scores);
    }
    wait_for_copies();
    __syncthreads();  // values have arrived; the keys are not read any more
    if (key + Tiles::kKeys < keys) load_keys(k, k_from, call.k.stride, key + Tiles::kKeys);
    if (sees) multiply_columns<kHeadSize>(sums, weights, v);
  }

  softmax.finish();
  float factors[kM][2];
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = softmax.total[i][half];
      factors[i][half] = total == 0 ? 0.0f : (kDropout ? call.dropout.factor : 1.0f) / total;
      const int place = row + 16 * i + 8 * half + lane_row();
      if (lane_column() != 0 || place >= sizes.queries) continue;
      call.log_sum[query_place(sizes, sequence, head, place)] =
          total == 0 ? -INFINITY : (softmax.base(i, half, call.scale_log2) + log2f(total)) * kLogE2;
    }
  }
  const std::int64_t warp_row = static_cast<std::int64_t>(sequence) * sizes.queries + row;
  store_rows<kHeadSize>(call.out.at(warp_row, head, sizes.head_size), call.out.stride,
                        sizes.queries - row, sizes.head_size, sums, factors, q_warp);
}

template <class T>
void launch_forward(const Context& context, const ops::Attention& call) {
  const ForwardCall<T> arguments{.sizes = sizes_of(call.shape),
                                 .q = head_rows<const T>(call.q),
                                 .k = head_rows<const T>(call.k),
                                 .v = head_rows<const T>(call.v),
                                 .out = head_rows<T>(call.out),
                                 .mask = mask_of(call.key_mask),
                                 .dropout = dropout_key(call.dropout),
                                 .log_sum = reinterpret_cast<float*>(call.log_sum.data()),
                                 .scale_log2 = call.scale * kLog2E,
                                 .cap = ProductCap(call.scale, call.softcap),
                                 .bias = distance_bias(call.shape, call.bias),
                                 .one_by_scale = 1 / call.scale};
  with_head_size(call.shape.head_size, [&]<int kHeadSize>(std::integral_constant<int, kHeadSize>) {
    using Tiles = ForwardTiles<kHeadSize>;
    const std::int64_t blocks =
        call.shape.batch * call.shape.heads * tiles_of(arguments.sizes.queries, Tiles::kQueries);
    with_scores(call, [&]<Scores kScores>(ScoresTag<kScores>) {
      launch<ForwardCall<T>>("attention_mma_forward", forward_kernel<T, kHeadSize, kScores>, blocks,
                             Tiles::kThreads, Tiles::kSharedBytes, context.stream, arguments);
    });
  });
}

}  // namespace lockstep::cuda::attention::mma
