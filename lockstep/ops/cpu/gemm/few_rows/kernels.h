// What the product of few rows (few_rows.h) does in its inner loops, for one instruction set.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

// Rows of x against neighbouring lines of a matrix [lines, k].
struct FewRows {
  const float* x = nullptr;  // [rows, stride], widened
  std::size_t rows = 0;
  std::size_t stride = 0;
  const std::byte* matrix = nullptr;
  std::size_t lines = 0;
  std::size_t k = 0;
  float* sums = nullptr;  // of row i and line j at i * sums_stride + j
  std::size_t sums_stride = 0;
};

struct FewRowsKernels {
  // Every sum runs in the same order, whatever the numbers of rows and lines.
  PerType<void (*)(const FewRows& work)> multiply;
  // to[i] = from[i].
  PerType<void (*)(const std::byte* from, std::size_t count, float* to)> widen;
};

LOCKSTEP_KERNEL_TABLE(FewRowsKernels, few_rows_kernels)

}  // namespace lockstep::cpu
