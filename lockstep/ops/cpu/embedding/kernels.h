// The kernels behind embedding.h. Pointers are to elements of the type that a kernel is picked for,
// or null where a field is not given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/cpu/elementwise/dropout.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

// Rows `begin` to `end` of an operation; the pointers are to its row 0.
struct EmbeddingRows {
  std::size_t begin, end, width;
  std::size_t sequence;
  const std::int32_t* tokens;
  const std::int32_t* types;
  const void* tokens_table;  // of `tokens_here` tokens from first_token on
  std::int64_t first_token;
  std::int64_t tokens_here;
  const void* positions_table;
  const void* types_table;
  const DropoutKey* dropout;  // null where nothing is dropped
  void* y;
};

// Some columns of the rows of dy whose sum is one row of a table's gradient.
struct RowsToAdd {
  const void* dy;  // the first of the columns, of row 0
  std::size_t width;
  const std::uint32_t* rows;
  std::size_t row_count;
  std::size_t columns;
  float* sums;  // a workspace of `columns`
  void* gradient;
};

struct EmbeddingKernels {
  PerType<void (*)(const EmbeddingRows& rows)> forward;
  // gradient += the sum of the rows, rounded once; of the type of dy, or f32.
  PerType<void (*)(const RowsToAdd&rows)> add_rows, add_rows_to_f32;
};

LOCKSTEP_KERNEL_TABLE(EmbeddingKernels, embedding_kernels)

}  // namespace lockstep::cpu
