// Products of matrices by our own kernel, for products without a cuBLASLt algorithm: unaligned
// addresses and leading dimensions, and k = 0.
#pragma once

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/linear/product.h"

namespace lockstep::cuda {

// Runs any product with Epilogue::kNone or kBias, with any alignment.
void plain_matmul(const Context& context, const Product& product, const Operands& operands);

}  // namespace lockstep::cuda
