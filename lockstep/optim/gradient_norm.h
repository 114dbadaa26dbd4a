// The global gradient norm, and clipping by it.
#pragma once

#include <span>

#include "lockstep/ops/ops.h"

namespace lockstep::optim {

// The root of the sum of squares of all elements of all ranges. `sums` is a workspace of one f64
// per range, on the device of the gradients. They are summed in order, so the result depends on the
// ranges but not on timing. Infinite or NaN if a gradient is. Waits for the operations before it.
double gradient_norm(Ops& ops, std::span<const Tensor> ranges, const Tensor& sums);

// The factor that scales gradients of that norm down to `limit`; 1 without a limit (0).
double clip_factor(double norm, double limit);

}  // namespace lockstep::optim
