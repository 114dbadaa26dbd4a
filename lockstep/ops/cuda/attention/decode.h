// One token of each sequence against the keys and values in its cache, in one kernel: it turns
// queries and keys, adds keys and values to the cache and attends.
//
// The keys of a sequence are split into parts of 64, or longer ones where there would be too many
// parts. How many there are follows from the length, which the kernel reads on the device; blocks
// beyond them end at once. The block that ends last puts the parts together, in order, so the bits
// depend on the length alone.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// Throws Error(kUnsupported) where heads are wider or the batch is larger than the kernel takes.
void run(const Context& context, const ops::DecodeAttention& call);
std::size_t decode_attention_scratch(const ops::AttentionShape& shape);

namespace attention {
inline constexpr std::int64_t kMostDecodeHead = 256;
void run_decode(const Context& context, const ops::DecodeAttention& call);
// Blocks that share a ticket: those of a key head and some of its query heads.
std::int64_t decode_tickets(const ops::DecodeAttention& call);
}  // namespace attention

}  // namespace lockstep::cuda
