// The kernels behind loss.h, one row each. Pointers are to elements of the type that a kernel is
// picked for.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

struct LossKernels {
  // Returns the loss; the logits become their gradient where asked for, with a soft cap (0: none)
  // that of the logits before.
  using CrossEntropy = float (*)(void* logits, std::size_t classes, std::size_t target,
                                 bool gradient, float factor, float softcap);
  PerType<CrossEntropy> cross_entropy;

  // Of a shard of logits: the largest, and the sum of e^(x - largest).
  struct Statistics {
    float largest, sum;
  };
  using LogitStatistics = Statistics (*)(void* logits, std::size_t classes);
  PerType<LogitStatistics> logit_statistics;
  // Logits x become factor * e^(x - largest) / sum, and the target's factor * (that - 1), times the
  // slope of the soft cap; `target` is `classes` where it is in another shard.
  using ShardGradient = void (*)(void* logits, std::size_t classes, std::size_t target,
                                 float largest, double sum, float factor, float softcap);
  PerType<ShardGradient> shard_gradient;

  // Returns the loss; dx may be null.
  using SquaredError = float (*)(const void* x, const void* target, void* dx, std::size_t width,
                                 float factor);
  PerType<SquaredError> squared_error;
};

LOCKSTEP_KERNEL_TABLE(LossKernels, loss_kernels)

}  // namespace lockstep::cpu
