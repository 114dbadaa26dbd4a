// The backward of GELU from the kept input z.
#pragma once

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

// dx *= f'(z), with f the tanh form of GELU. Both have the same compute type and number of
// elements.
void multiply_by_gelu_slopes(const Context& context, const Tensor& z, const Tensor& dx);

}  // namespace lockstep::cuda
