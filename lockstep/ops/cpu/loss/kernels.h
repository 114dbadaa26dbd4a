// The kernels behind loss.h, one row each. Pointers are to elements of the type that a kernel is
// picked for.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

struct LossKernels {
  // Returns the loss; the logits become their gradient where asked for.
  using CrossEntropy = float (*)(void* logits, std::size_t classes, std::size_t target,
                                 bool gradient, float factor);
  PerType<CrossEntropy> cross_entropy;

  // Returns the loss; dx may be null.
  using SquaredError = float (*)(const void* x, const void* target, void* dx, std::size_t width,
                                 float factor);
  PerType<SquaredError> squared_error;
};

LOCKSTEP_KERNEL_TABLE(LossKernels, loss_kernels)

}  // namespace lockstep::cpu
