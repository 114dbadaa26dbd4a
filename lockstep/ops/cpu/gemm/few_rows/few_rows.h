// Products of a few rows with a weight [out, in], as in generating text a token at a time: every
// element of the weight is used once per row, so memory bandwidth limits the speed. The weight is
// read once, in place and in order; packing it would cost more than the product.
//
// Threads share the outputs. A sum runs over its depth in an order that follows from the depth and
// the instruction set alone: the same bits for any number of threads, and for a row whatever other
// rows come with it.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/ops/cpu/gemm/implementation.h"

namespace lockstep::cpu::gemm {

// Beyond as many, the packed product is faster.
inline constexpr std::size_t kFewRows = 8;

// Accepts y = x weight^T of 1 to kFewRows rows, whatever is fused to it.
std::unique_ptr<Implementation> make_few_rows(const Cpu& cpu);

}  // namespace lockstep::cpu::gemm
