// Attention on a GPU: the first implementation that accepts a call runs it (attention.cu).
#pragma once

#include <cstddef>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Attention& call);
void run(const Context& context, const ops::AttentionBackward& call);

// Bytes of workspace that forward and backward of such a shape need; never less for more keys.
std::size_t attention_scratch(const Context& context, const ops::AttentionShape& shape);

}  // namespace lockstep::cuda
