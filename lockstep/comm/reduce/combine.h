// The arithmetic of reductions: combines the contributions of all ranks at once.
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
// 16-bit floats are accumulated in 32 bits and rounded once. mean combines like sum: the call with
// the last contribution passes `divisor` = number of ranks, all others 1; the division happens
// before the rounding. An output may be the same pointer as an input; any other overlap is
// undefined. At least one input; any number of outputs, and it is best if the first is the caller's
// own memory. Pointers need no alignment (but a user reduction gets them as they are).
//
// All instruction sets give the same bits. Every NaN in a result is the positive quiet one without
// payload; min and max order -0 below +0; a single input without division is copied unchanged.
void combine(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
             std::size_t count, DType dtype, const ReduceOp& op, int divisor = 1);

// values[i] /= divisor: finishes a mean whose sum was computed elsewhere.
void divide(std::byte* values, std::size_t count, DType dtype, int divisor);

}  // namespace lockstep
