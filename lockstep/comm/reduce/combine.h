// The arithmetic of reductions: every rank's contribution taken in at once.
//
// The instruction set is that of the process (base/simd/isa.h).
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

// Every output[o][i] = inputs[0][i] op inputs[1][i] op ..., from left to right, for i < count.
//
// 16-bit floats are accumulated in 32 bits and rounded once. mean combines like sum: whoever holds
// the last of the contributions calls it with `divisor` = number of ranks, everyone else with 1;
// the division happens before the rounding. An output may be the very same pointer as an input;
// any other overlap is an error of the caller's. At least one input; any number of outputs, of
// which the first is best the caller's own memory where others are not. Pointers need no alignment
// (but a user's operation sees them as they are).
//
// All instruction sets give the same bits. Every NaN in a result is the positive quiet one without
// payload; min and max order -0 below +0; one input without division is copied as it is.
void combine(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
             std::size_t count, DType dtype, const ReduceOp& op, int divisor = 1);

// values[i] /= divisor: the finish of a mean whose sum was made elsewhere.
void divide(std::byte* values, std::size_t count, DType dtype, int divisor);

}  // namespace lockstep
