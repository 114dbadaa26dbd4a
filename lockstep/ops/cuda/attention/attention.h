// Attention on a GPU: the first implementation that accepts a call runs it (attention.cu).
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Attention& call);
void run(const Context& context, const ops::AttentionBackward& call);

// Bytes of workspace that forward and backward of this shape need. The number never falls when the
// number of keys grows.
std::size_t attention_scratch(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda
