// What the backward of a GELU does to the gradient, where z was kept.
#pragma once

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

// dx *= f'(z), f the GELU of the tanh kind. Both of the same compute type and number of elements.
void multiply_by_gelu_slopes(const Context& context, const Tensor& z, const Tensor& dx);

}  // namespace lockstep::cuda
