// Attention of few queries to many keys, as in generating text: the keys of a sequence are split
// among blocks of threads, so that a handful of queries still keeps the whole chip at reading keys
// and values.
//
// A block takes the queries of all heads that share a key head, so that its keys are read once. It
// leaves in the workspace, for each query, the largest score, the sum of exponentials and the sum
// of values weighted by them; a second kernel puts the parts together in order. Forward only, in
// f32 arithmetic.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

bool split_accepts(const Context& context, const ops::Attention& call);
void run_split(const Context& context, const ops::Attention& call);
// Never less for more keys.
std::size_t split_scratch(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda::attention
