// Products of up to 8 rows with a weight, as in text generation. Reading the weight takes all the
// time, so the kernels read it once at the bandwidth of memory.
//
// The result of a row has the same bits whatever other rows are in the product.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

bool few_rows_accepts(const ops::Linear& call);
bool few_rows_accepts(const ops::LinearActivation& call);
void run_few_rows(const Context& context, const ops::Linear& call);
void run_few_rows(const Context& context, const ops::LinearActivation& call);

// Depends only on shapes; assumes tensors aligned to 16 bytes.
bool few_rows_accepts(std::int64_t rows, std::int64_t in, DType dtype);

}  // namespace lockstep::cuda
