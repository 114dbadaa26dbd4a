// The arithmetic of reductions for one instruction set. Internal to reduce/.
//
// All kernel sets give the same bits for the same call: inputs are taken from left to right,
// nothing is reordered, nor fused but for products with one, 16-bit floats are widened exactly and
// rounded once, and every NaN that arithmetic makes or passes on is stored as the same one,
// positive and quiet.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/comm/reduce_op.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::reduce {

// combine() with its arguments checked: at least one element and input, no user operation.
struct KernelCall {
  const std::byte* const* inputs;
  std::size_t input_count;
  std::byte* const* outputs;
  std::size_t output_count;
  std::size_t count;
  DType dtype;
  ReduceOp::Kind op;
  int divisor;
  bool updates;  // every output is one of the inputs
  bool stream;   // outputs are none of the inputs and too large to stay in cache
};

struct ReduceKernels {
  void (*combine)(const KernelCall& call);
};

LOCKSTEP_KERNEL_TABLE_NEON16(ReduceKernels, reduce_kernels)

}  // namespace lockstep::reduce
