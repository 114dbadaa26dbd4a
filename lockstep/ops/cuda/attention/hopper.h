// Attention for Hopper (compute capability 9.0): bulk tensor copies into shared memory, products of
// warpgroups (wgmma) out of it, softmax in registers. hopper_forward.cuh and hopper_backward.cuh
// say how.
//
// Taken are bf16 and f16, heads of 64 or 128 elements, any number of queries and keys, causal or
// not, grouped heads; neither dropout nor key masks nor kept probabilities. Everything must lie on
// 16 bytes, rows too.
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

bool hopper_accepts(const Context& context, const ops::Attention& call);
void run_hopper(const Context& context, const ops::Attention& call);

// Wants hopper_scratch() bytes of workspace.
bool hopper_accepts(const Context& context, const ops::AttentionBackward& call);
void run_hopper(const Context& context, const ops::AttentionBackward& call);

// The workspace of a backward of that shape; 0 where it is not taken.
std::size_t hopper_scratch(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda
