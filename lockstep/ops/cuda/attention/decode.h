// Attention of one token of each sequence to the keys and values in its cache, in one kernel. The
// kernel rotates queries and keys, appends keys and values to the cache, and attends.
//
// The keys of a sequence are split into parts of 64 keys, or of more where there would be too many
// parts. The kernel computes the number of parts from the length, which it reads on the device.
// Blocks without a part end at once. The block that ends last combines the parts in order, so the
// bits depend only on the length.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// Throws Error(kUnsupported) if heads are wider or the batch is larger than the kernel supports.
void run(const Context& context, const ops::DecodeAttention& call);
std::size_t decode_attention_scratch(const ops::AttentionShape& shape);

namespace attention {
inline constexpr std::int64_t kMostDecodeHead = 256;
void run_decode(const Context& context, const ops::DecodeAttention& call);
// The number of tickets. The blocks of a key head and some of its query heads share one.
std::int64_t decode_tickets(const ops::DecodeAttention& call);
}  // namespace attention

}  // namespace lockstep::cuda
