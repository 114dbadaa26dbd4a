// The sum of many workers' gradients in one fixed order: a balanced binary tree over workers
//
//   ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
//
// in which of an odd number the left half has one more. These are the bits of an all-reduce by
// recursive doubling among 2, 4, 8 ... ranks, and those of a serial sum over two.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/tensor/dtype.h"

namespace lockstep::parallel {

// `sum` of `inputs`, each of as many elements of that type (f32, bf16 or f16), added up in f32. At
// least one input, none of which is `sum`.
void sum_of_workers(std::span<const std::byte* const> inputs, DType dtype, std::span<float> sum);

}  // namespace lockstep::parallel
