// The arguments of both backward kernels with tensor cores (mma.h).
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/attention/mma_bias.cuh"
#include "lockstep/ops/cuda/attention/mma_tile.cuh"
#include "lockstep/ops/cuda/attention/statistics.h"

namespace lockstep::cuda::attention::mma {

template <class T>
struct BackwardCall {
  Sizes sizes;
  HeadRows<const T> q, k, v, dout;
  HeadRows<T> dq, dk, dv;
  const std::uint8_t* mask = nullptr;
  DropoutKey dropout;
  Statistics statistics;
  float scale = 1;
  float scale_log2 = 1;  // from products to scores in units of log 2
  ProductCap cap;
  DistanceBias bias;
  BiasSums bias_sums;  // a strip is a warp's queries
  float one_by_scale = 1;
};

template <class T>
BackwardCall<T> backward_call(const ops::AttentionBackward& call, const Statistics& statistics,
                              const BiasSums& bias_sums) {
  return {.sizes = sizes_of(call.shape),
          .q = head_rows<const T>(call.q),
          .k = head_rows<const T>(call.k),
          .v = head_rows<const T>(call.v),
          .dout = head_rows<const T>(call.dout),
          .dq = head_rows<T>(call.dq),
          .dk = head_rows<T>(call.dk),
          .dv = head_rows<T>(call.dv),
          .mask = mask_of(call.key_mask),
          .dropout = dropout_key(call.dropout),
          .statistics = statistics,
          .scale = call.scale,
          .scale_log2 = call.scale * kLog2E,
          .cap = ProductCap(call.scale, call.softcap),
          .bias = distance_bias(call.shape, call.bias),
          .bias_sums = bias_sums,
          .one_by_scale = 1 / call.scale};
}

// For one element, replaces dp by p (dp - delta), the gradient of the score before scaling. With
// dropout it replaces p by the weight of dv, without the factor of kept elements.
template <bool kDropout>
__device__ __forceinline__ void make_gradient(float& p, float& dp, float delta, bool kept,
                                              float factor) {
  if constexpr (kDropout) dp = kept ? dp * factor : 0.0f;
  dp = p * (dp - delta);
  if constexpr (kDropout) {
    if (!kept) p = 0;
  }
}

}  // namespace lockstep::cuda::attention::mma
