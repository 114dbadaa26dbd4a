// Layer norm and RMS norm on a GPU, with the residual sum and its dropout in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::Norm& call);

// Uses norm_scratch() bytes of context.workspace.
void run(const Context& context, const ops::NormBackward& call);
std::size_t norm_scratch(const Context& context, std::int64_t rows, std::int64_t width);

}  // namespace lockstep::cuda
