// RMS norms of heads on a GPU, each head by itself.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::HeadNorm& call);

// Of heads of up to kMostNormedHead elements.
inline constexpr std::int64_t kMostNormedHead = 8192;
void run(const Context& context, const ops::HeadNormBackward& call);

}  // namespace lockstep::cuda
