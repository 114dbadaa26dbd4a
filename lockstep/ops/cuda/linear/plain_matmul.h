// Products of matrices by a kernel of our own, for what cuBLASLt has no algorithm for: addresses
// and leading dimensions that no vector load can take, and k = 0.
#pragma once

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/linear/product.h"

namespace lockstep::cuda {

// Any product with Epilogue::kNone or kBias, and elements anywhere.
void plain_matmul(const Context& context, const Product& product, const Operands& operands);

}  // namespace lockstep::cuda
