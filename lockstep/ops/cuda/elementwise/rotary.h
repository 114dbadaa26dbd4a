// Rotary embedding on a GPU, in place.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

// The most pairs with a slowing each, which the arguments of a kernel hold: so captured steps have
// theirs.
inline constexpr std::size_t kMostSlowedPairs = 128;

void run(const Context& context, const ops::Rotary& call);

}  // namespace lockstep::cuda
