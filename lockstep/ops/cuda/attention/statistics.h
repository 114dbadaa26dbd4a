// Two numbers per query that the backward of attention needs first.
//
// The gradient of a score is p (dp - delta). delta, the sum of p dp over the keys, equals the inner
// product of the query's out and dout, which takes head_size products instead of one per key.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

// In the workspace, laid out as log_sum is.
struct Statistics {
  const float* delta = nullptr;
  // log_sum in units of log 2, for powers of 2. It is +infinity where a query attends to no key,
  // which makes its probabilities 0.
  const float* log2_sum = nullptr;
};

std::size_t statistics_bytes(const ops::AttentionShape& shape);

// Writes them to the beginning of the workspace.
Statistics prepare_statistics(const Context& context, const ops::AttentionBackward& call);

}  // namespace lockstep::cuda::attention
