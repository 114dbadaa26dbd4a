// The gradient of a bias: accumulates the column sums of dy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

// dbias[c] += the sum of dy[row][first + c] over all rows, or = where it is to be overwritten. dy
// is [rows, width] of a compute type, with at least one row, dbias of the same or f32. Uses the
// context's workspace.
void add_column_sums(const Context& context, const Tensor& dy, std::int64_t first,
                     const Tensor& dbias, bool overwrite);

// The bytes of workspace that it needs.
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, int multiprocessors);

}  // namespace lockstep::cuda
