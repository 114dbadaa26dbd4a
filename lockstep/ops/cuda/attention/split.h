// Attention of few queries to many keys, as in generating text: the keys of a sequence are split
// among blocks of threads, so that the whole GPU reads keys and values even for a handful of
// queries.
//
// A block takes the queries of all heads that share a key head, so that its keys are read once. For
// each query it writes the largest score, the sum of exponentials and the sum of values weighted by
// them to the workspace. A second kernel combines the parts in order. Forward only, in f32
// arithmetic.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

bool split_accepts(const Context& context, const ops::Attention& call);
void run_split(const Context& context, const ops::Attention& call);
// The number never falls when the number of keys grows.
std::size_t split_scratch(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda::attention
