// Queues the backward kernels with tensor cores.
#pragma once

#include "lockstep/ops/cuda/attention/mma_keys.cuh"
#include "lockstep/ops/cuda/attention/mma_queries.cuh"

namespace lockstep::cuda::attention::mma {

template <class T>
void launch_backward(const Context& context, const ops::AttentionBackward& call) {
  const Statistics statistics = prepare_statistics(context, call);
  const int blocks = tiles_of(static_cast<int>(call.shape.queries), kStripQueries * kBlockStrips);
  const BiasSums strips = bias_sums(context, call, blocks * kBlockStrips);
  const BackwardCall<T> arguments = backward_call<T>(call, statistics, strips);
  const Sizes& sizes = arguments.sizes;
  with_head_size(call.shape.head_size, [&]<int kHeadSize>(std::integral_constant<int, kHeadSize>) {
    with_scores(call, [&]<Scores kScores>(ScoresTag<kScores>) {
      using Queries = QueriesTiles<kHeadSize>;
      launch<BackwardCall<T>>(
          "attention_mma_dq", queries_kernel<T, kHeadSize, kScores>,
          call.shape.batch * call.shape.heads * tiles_of(sizes.queries, Queries::kQueries),
          Queries::kThreads, Queries::shared_bytes(are_biased(kScores)), context.stream, arguments);
      using Keys = KeysTiles<kHeadSize>;
      launch<BackwardCall<T>>(
          "attention_mma_dk_dv", keys_kernel<T, kHeadSize, kScores>,
          call.shape.batch * call.shape.kv_heads * tiles_of(sizes.keys, Keys::kKeys),
          Keys::kThreads, Keys::kSharedBytes, context.stream, arguments);
    });
  });
  merge_bias_sums(context, call, strips);
}

}  // namespace lockstep::cuda::attention::mma
