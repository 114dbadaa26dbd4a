// The kernels behind optimizer.h.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

// The numbers of a step, each worked out in double and rounded once:
//   g = gradient gradient_scale + coupled_decay master
//   m = beta1 m + not_beta1 g, the first moment; v = beta2 v + not_beta2 g^2, the second
//   master -= rate m / (root sqrt(v) + epsilon) + decay master
struct AdamNumbers {
  float gradient_scale, coupled_decay;
  float beta1, not_beta1, beta2, not_beta2;
  float rate, root, epsilon, decay;
};

// g = gradient gradient_scale + decay master; velocity = momentum velocity + g; master -= rate
// velocity.
struct SgdNumbers {
  float gradient_scale, decay, momentum, rate;
};

struct OptimizerKernels {
  // By the types of gradient and parameter, which is f32 where there is no parameter.
  using Adam = void (*)(const AdamNumbers& numbers, const void* gradient, float* master,
                        float* first_moment, float* second_moment, void* parameter,
                        std::size_t count);
  PerType<PerType<Adam>> adam;
  // `velocity` is null without momentum.
  using Sgd = void (*)(const SgdNumbers& numbers, const void* gradient, float* master,
                       float* velocity, void* parameter, std::size_t count);
  PerType<PerType<Sgd>> sgd;

  using SumOfSquares = double (*)(const void* x, std::size_t count);
  PerType<SumOfSquares> sum_of_squares;
  SumOfSquares sum_of_squares_f64;
};

LOCKSTEP_KERNEL_TABLE(OptimizerKernels, optimizer_kernels)

}  // namespace lockstep::cpu
