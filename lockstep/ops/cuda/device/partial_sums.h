// The second half of sums over the rows of a matrix. The first half writes one row of partial sums
// for each part of the rows.
#pragma once

#include <cstdint>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

// dbias[c] += partials[0][c] + partials[1][c] + ..., f32 [splits, columns], in a fixed order; or =
// where it is to be overwritten.
void add_partial_sums(const Context& context, const float* partials, std::int64_t splits,
                      const Tensor& dbias, bool overwrite = false);

}  // namespace lockstep::cuda
