// The sum of many workers' gradients in one fixed order: a balanced binary tree over workers
//
//   ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
//
// in which of an odd number the left half has one more. These are the bits of an all-reduce by
// recursive doubling among 2, 4, 8 ... ranks, and those of a serial sum over two.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::parallel {

// Adds up `inputs`, each of `count` elements, into the first of them; the others hold sums in
// between afterwards. At least one input.
void sum_of_workers(std::span<float* const> inputs, std::size_t count);

}  // namespace lockstep::parallel
