#include <cuda_runtime.h>

#include <algorithm>

#include "lockstep/ops/cuda/attention/hopper.h"
#include "lockstep/ops/cuda/attention/hopper_forward.cuh"
#include "lockstep/ops/cuda/attention/hopper_maps.h"
#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace hopper {

// The bytes of keys and values that are in use at a time; they fit well into the L2 cache.
constexpr std::int64_t kCachedBytes = 24 << 20;

template <class C>
void launch_forward(const Context& context, const ops::Attention& call) {
  const ops::AttentionShape& shape = call.shape;
  const auto map = [&](const ops::Heads& heads, std::int64_t sequence, std::int64_t count,
                       int box_rows) {
    return make_map(heads, {.batch = shape.batch,
                            .sequence = sequence,
                            .heads = count,
                            .head_size = shape.head_size,
                            .box_rows = box_rows});
  };
  const std::int64_t batch_heads = shape.batch * shape.heads;
  const std::int64_t query_tiles = (shape.queries + C::kQueries - 1) / C::kQueries;
  const std::int64_t heads_per_kv = shape.heads / shape.kv_heads;
  const std::int64_t cached_kv_heads =
      std::max<std::int64_t>(1, kCachedBytes / (4 * shape.keys * shape.head_size));

  ForwardArgs args{};
  args.q = map(call.q, shape.queries, shape.heads, C::kQueries);
  args.k = map(call.k, shape.keys, shape.kv_heads, C::kKeys);
  args.v = map(call.v, shape.keys, shape.kv_heads, C::kKeys);
  args.out = map({call.out, 0}, shape.queries, shape.heads, 64);
  args.log_sum = reinterpret_cast<float*>(call.log_sum.data());
  args.next_tile = context.tickets;
  args.queries = static_cast<int>(shape.queries);
  args.keys = static_cast<int>(shape.keys);
  args.offset = static_cast<int>(shape.keys - shape.queries);
  args.causal = shape.causal ? 1 : 0;
  args.heads = static_cast<int>(shape.heads);
  args.heads_per_kv = static_cast<int>(heads_per_kv);
  args.batch_heads = static_cast<int>(batch_heads);
  args.query_tiles = static_cast<int>(query_tiles);
  args.section = static_cast<int>(std::min(batch_heads, cached_kv_heads * heads_per_kv));
  args.tiles = static_cast<int>(batch_heads * query_tiles);
  args.scale = call.scale;
  args.scale_log2 = call.scale * 1.44269504088896340736f;

  const int blocks = std::min(args.tiles, context.multiprocessors * C::kBlocksPerSm);
  launch_overlapped<ForwardArgs>(context, "hopper_attention", hopper_attention<C>,
                                 static_cast<unsigned>(blocks), C::kThreads, C::kSharedBytes, args);
}

// The fastest of those that were measured on an H200 with 1k to 8k tokens. Where queries attend to
// many keys, longer blocks of keys are faster. Where they attend to few, most blocks are on the
// diagonal, and shorter blocks mask less.
template <class T>
using CausalForward64 = ForwardConfig<T, 64, 64, 4, 4, 1, false>;
template <class T>
using LongCausalForward64 = ForwardConfig<T, 64, 128, 3, 2, 1, false>;
template <class T>
using Forward64 = ForwardConfig<T, 64, 128, 3, 4, 1, true>;
template <class T>
using Forward128 = ForwardConfig<T, 128, 128, 2, 2, 1, true>;
constexpr std::int64_t kManyKeys = 4096;

template <class T>
void choose_forward(const Context& context, const ops::Attention& call) {
  if (call.shape.head_size == 128) {
    launch_forward<Forward128<T>>(context, call);
  } else if (!call.shape.causal) {
    launch_forward<Forward64<T>>(context, call);
  } else if (call.shape.keys >= kManyKeys) {
    launch_forward<LongCausalForward64<T>>(context, call);
  } else {
    launch_forward<CausalForward64<T>>(context, call);
  }
}

}  // namespace hopper

bool hopper_accepts(const Context& context, const ops::Attention& call) {
  return hopper::is_supported(context, call.shape) && !ops::is_given(call.key_mask) &&
         !ops::is_given(call.probabilities) && call.dropout.probability == 0 && call.scale > 0 &&
         hopper::is_mappable(call.q) && hopper::is_mappable(call.k) &&
         hopper::is_mappable(call.v) && hopper::is_mappable({call.out, 0});
}

void run_hopper(const Context& context, const ops::Attention& call) {
  if (call.shape.dtype == DType::kBF16) {
    hopper::choose_forward<__nv_bfloat16>(context, call);
  } else {
    hopper::choose_forward<__half>(context, call);
  }
}

}  // namespace lockstep::cuda
