// The norm of all gradients together, and what follows from it.
#pragma once

#include <span>

#include "lockstep/ops/ops.h"

namespace lockstep::optim {

// The root of the sum of squares of all elements of all ranges. `sums`, f64 and on the device of
// the gradients, has room for one number per range; they are added up in order, so the result
// depends on the ranges but not on timing. Infinite or NaN where a gradient is. Waits for the
// operations before it.
double gradient_norm(Ops& ops, std::span<const Tensor> ranges, const Tensor& sums);

// What gradients of that norm are multiplied with to have at most norm `limit`; 1 without a limit
// (0).
double clip_factor(double norm, double limit);

}  // namespace lockstep::optim
