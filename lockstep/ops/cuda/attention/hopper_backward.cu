#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "lockstep/ops/cuda/attention/hopper.h"
#include "lockstep/ops/cuda/attention/hopper_backward.cuh"
#include "lockstep/ops/cuda/attention/hopper_backward_rows.cuh"
#include "lockstep/ops/cuda/attention/hopper_maps.h"
#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace hopper {

BackwardShape cut_up(const ops::AttentionShape& shape) {
  const auto blocks = [](std::int64_t rows, int size) {
    return static_cast<int>((rows + size - 1) / size);
  };
  BackwardShape cut{};
  cut.batch = static_cast<int>(shape.batch);
  cut.queries = static_cast<int>(shape.queries);
  cut.keys = static_cast<int>(shape.keys);
  cut.offset = cut.keys - cut.queries;
  cut.causal = shape.causal ? 1 : 0;
  cut.heads = static_cast<int>(shape.heads);
  cut.kv_heads = static_cast<int>(shape.kv_heads);
  cut.heads_per_kv = cut.heads / cut.kv_heads;
  cut.block_queries = backward_queries(static_cast<int>(shape.head_size));
  cut.query_blocks = blocks(shape.queries, cut.block_queries);
  cut.key_blocks = blocks(shape.keys, kBackwardKeys);
  cut.padded_queries = blocks(shape.queries, 128) * 128;
  return cut;
}

template <class T, int kHeadSize>
void launch_backward(const Context& context, const ops::AttentionBackward& call) {
  using C = BackwardConfig<T, kHeadSize>;
  const ops::AttentionShape& shape = call.shape;
  const BackwardShape cut = cut_up(shape);
  const BackwardWorkspace workspace = lay_out(cut, kHeadSize);
  const auto part = [&](std::size_t offset) { return context.workspace + offset; };

  PrepareArgs prepare{};
  prepare.shape = cut;
  prepare.out = call.out.data();
  prepare.dout = call.dout.data();
  prepare.log_sum = reinterpret_cast<const float*>(call.log_sum.data());
  prepare.log_sums = reinterpret_cast<float*>(part(workspace.log_sums));
  prepare.deltas = reinterpret_cast<float*>(part(workspace.deltas));
  prepare.counters = reinterpret_cast<std::uint32_t*>(part(workspace.counters));
  prepare.counter_count = static_cast<std::int64_t>(workspace.counter_count);
  const std::int64_t threads = shape.batch * cut.padded_queries * shape.heads * (kHeadSize / 8);
  launch_overlapped<PrepareArgs>(context, "prepare_backward", prepare_backward<T, kHeadSize>,
                                 static_cast<unsigned>((threads + 255) / 256), 256, 0, prepare);

  const auto map = [&](const ops::Heads& heads, std::int64_t sequence, std::int64_t count,
                       int box_rows) {
    return make_map(heads, {.batch = shape.batch,
                            .sequence = sequence,
                            .heads = count,
                            .head_size = shape.head_size,
                            .box_rows = box_rows});
  };
  BackwardArgs args{};
  args.q = map(call.q, shape.queries, shape.heads, C::kQueries);
  args.k = map(call.k, shape.keys, shape.kv_heads, C::kKeys);
  args.v = map(call.v, shape.keys, shape.kv_heads, C::kKeys);
  args.dout = map({call.dout, 0}, shape.queries, shape.heads, C::kQueries);
  args.dk = map(call.dk, shape.keys, shape.kv_heads, 64);
  args.dv = map(call.dv, shape.keys, shape.kv_heads, 64);
  args.shape = cut;
  args.items = cut.batch * cut.kv_heads * cut.key_blocks;
  args.scale = call.scale;
  args.scale_log2 = call.scale * 1.44269504088896340736f;
  args.dq = reinterpret_cast<float*>(part(workspace.dq));
  args.log_sums = prepare.log_sums;
  args.deltas = prepare.deltas;
  args.next_item = prepare.counters;
  args.turns = prepare.counters + 1;
  launch_overlapped<BackwardArgs>(
      context, "hopper_attention_backward", hopper_attention_backward<C>,
      static_cast<unsigned>(std::min(args.items, context.multiprocessors)), C::kThreads,
      C::kSharedBytes, args);

  FinishArgs finish{};
  finish.shape = cut;
  finish.sums = args.dq;
  finish.dq =
      call.dq.rows.data() + static_cast<std::size_t>(call.dq.first) * size_of(call.dq.rows.dtype());
  finish.row_elements = call.dq.rows.shape().extents().back();
  finish.scale = call.scale;
  launch_overlapped<FinishArgs>(context, "finish_backward", finish_backward<T, kHeadSize>,
                                static_cast<unsigned>(2 * cut.batch * cut.heads * cut.query_blocks),
                                128, 0, finish);
}

template <class T>
void choose_backward(const Context& context, const ops::AttentionBackward& call) {
  if (call.shape.head_size == 64) {
    launch_backward<T, 64>(context, call);
  } else {
    launch_backward<T, 128>(context, call);
  }
}

// Rows of all heads, padded, are counted in 32 bits.
bool is_countable(const ops::AttentionShape& shape) {
  return shape.batch * shape.heads <
         std::numeric_limits<std::int32_t>::max() / (shape.queries + 128);
}

}  // namespace hopper

std::size_t hopper_scratch(const Context& context, const ops::AttentionShape& shape) {
  if (!hopper::is_supported(context, shape) || !hopper::is_countable(shape)) return 0;
  return hopper::lay_out(hopper::cut_up(shape), static_cast<int>(shape.head_size)).bytes;
}

bool hopper_accepts(const Context& context, const ops::AttentionBackward& call) {
  return hopper::is_supported(context, call.shape) && hopper::is_countable(call.shape) &&
         !ops::is_given(call.key_mask) && call.dropout.probability == 0 && call.scale > 0 &&
         hopper::is_mappable(call.q) && hopper::is_mappable(call.k) &&
         hopper::is_mappable(call.v) && hopper::is_mappable({call.out, 0}) &&
         hopper::is_mappable({call.dout, 0}) && hopper::is_mappable(call.dq) &&
         hopper::is_mappable(call.dk) && hopper::is_mappable(call.dv) &&
         context.workspace_bytes >= hopper_scratch(context, call.shape);
}

void run_hopper(const Context& context, const ops::AttentionBackward& call) {
  if (call.shape.dtype == DType::kBF16) {
    hopper::choose_backward<__nv_bfloat16>(context, call);
  } else {
    hopper::choose_backward<__half>(context, call);
  }
}

}  // namespace lockstep::cuda
