// Products of up to 8 rows with a weight, as in generating text: the time is that of reading the
// weight once, so the weight is read at the speed of memory and nothing else matters.
//
// A row's result has the same bits whatever rows come with it.
#pragma once

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

bool few_rows_accepts(const ops::Linear& call);
bool few_rows_accepts(const ops::LinearActivation& call);
void run_few_rows(const Context& context, const ops::Linear& call);
void run_few_rows(const Context& context, const ops::LinearActivation& call);

// From shapes alone, of tensors that begin at multiples of 16 bytes.
bool few_rows_accepts(std::int64_t rows, std::int64_t in, DType dtype);

}  // namespace lockstep::cuda
