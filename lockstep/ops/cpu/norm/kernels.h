// The kernels behind norm.h. Pointers are to elements of the type that a kernel is picked for, or
// null where a field is not given.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/cpu/elementwise/dropout.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

// Rows `begin` to `end` of an operation; the pointers are to its row 0.
struct NormRows {
  std::size_t begin, end, width;
  bool subtracts_mean;  // a layer norm
  float epsilon;
  const void* x;
  const void* branch;
  const DropoutKey* dropout;  // of the branch; null where nothing is dropped
  void* sum;                  // x itself without a branch
  const void* gain;
  const void* bias;
  void* y;
  float* mean;
  float* rstd;
  float one = 0;  // what the gain is above `gain`
};

struct NormBackwardRows {
  std::size_t begin, end, width;
  bool subtracts_mean;
  const void* dy;
  const void* sum;
  const void* gain;
  const float* mean;
  const float* rstd;
  const void* dresidual;
  void* dsum;
  const DropoutKey* dropout;
  void* dbranch;
  float* dgain;  // [width], of these rows alone
  float* dbias;  // the same, or null
  float one = 0;
};

struct NormKernels {
  PerType<void (*)(const NormRows& rows)> forward;
  PerType<void (*)(const NormBackwardRows& rows)> backward;

  // gradient[i] += the sum over all parts of part[i]; parts lie `stride` floats apart.
  using AddParts = void (*)(void* gradient, const float* parts, std::size_t count,
                            std::size_t stride, std::size_t columns);
  PerType<AddParts> add_parts;
};

LOCKSTEP_KERNEL_TABLE(NormKernels, norm_kernels)

}  // namespace lockstep::cpu
