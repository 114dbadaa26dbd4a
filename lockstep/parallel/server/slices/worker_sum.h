// The sum of many workers' gradients in one fixed order: a balanced binary tree over workers
//
//   ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
//
// For an odd number the left half has one more. The bits are those of an all-reduce by recursive
// doubling over 2, 4, 8 ... ranks, and of a serial sum over two.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/tensor/dtype.h"

namespace lockstep::parallel {

// sum = the sum of `inputs` in f32. All have the same number of elements of `dtype` (f32, bf16 or
// f16). At least one input; none may be `sum`.
void sum_of_workers(std::span<const std::byte* const> inputs, DType dtype, std::span<float> sum);

}  // namespace lockstep::parallel
