// Queues the backward kernels with tensor cores.
#pragma once

#include "lockstep/ops/cuda/attention/mma_keys.cuh"
#include "lockstep/ops/cuda/attention/mma_queries.cuh"

namespace lockstep::cuda::attention::mma {

template <class T>
void launch_backward(const Context& context, const ops::AttentionBackward& call) {
  const BackwardCall<T> arguments = backward_call<T>(call, prepare_statistics(context, call));
  const Sizes& sizes = arguments.sizes;
  with_head_size(call.shape.head_size, [&]<int kHeadSize>(std::integral_constant<int, kHeadSize>) {
    with_scores(arguments.dropout.given, call.softcap > 0, [&]<Scores kScores>(ScoresTag<kScores>) {
      using Queries = QueriesTiles<kHeadSize>;
      launch<BackwardCall<T>>(
          "attention_mma_dq", queries_kernel<T, kHeadSize, kScores>,
          call.shape.batch * call.shape.heads * tiles_of(sizes.queries, Queries::kQueries),
          Queries::kThreads, Queries::kSharedBytes, context.stream, arguments);
      using Keys = KeysTiles<kHeadSize>;
      launch<BackwardCall<T>>(
          "attention_mma_dk_dv", keys_kernel<T, kHeadSize, kScores>,
          call.shape.batch * call.shape.kv_heads * tiles_of(sizes.keys, Keys::kKeys),
          Keys::kThreads, Keys::kSharedBytes, context.stream, arguments);
    });
  });
}

}  // namespace lockstep::cuda::attention::mma
