// Attention for Hopper (compute capability 9.0): bulk tensor copies into shared memory, products of
// warpgroups (wgmma) out of it, softmax in registers. hopper_forward.cuh and hopper_backward.cuh
// describe the algorithms.
//
// It accepts bf16 and f16, heads of 64 or 128 elements, grouped heads, any number of queries and
// keys, causal or not. It does not accept dropout, key masks and kept probabilities. Tensors and
// their rows must be aligned to 16 bytes.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

bool hopper_accepts(const Context& context, const ops::Attention& call);
void run_hopper(const Context& context, const ops::Attention& call);

// Requires hopper_scratch() bytes of workspace.
bool hopper_accepts(const Context& context, const ops::AttentionBackward& call);
void run_hopper(const Context& context, const ops::AttentionBackward& call);

// The workspace of a backward of this shape; 0 if the shape is not accepted.
std::size_t hopper_scratch(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda
