// Gradients of biases: sums of the columns of a matrix, in one order whatever the number of
// threads.
#pragma once

#include "lockstep/ops/cpu/team/cpu.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu::gemm {

// sums[j] += the sum of column first + j of `matrix` [rows, columns]; sums is f32 or of the
// matrix's type.
void add_column_sums(const Cpu& cpu, const Tensor& matrix, std::int64_t first, const Tensor& sums);

}  // namespace lockstep::cpu::gemm
