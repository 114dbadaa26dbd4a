// What the backward of attention needs of every query before all else.
//
// The gradient of a score is p (dp - delta), where delta, the sum of p dp over the keys, is also
// the product of the query's out and dout: head_size products in place of one for every key.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

// In the workspace, laid out as log_sum is.
struct Statistics {
  const float* delta = nullptr;
  // log_sum in units of log 2, for powers of 2; +infinity where a query sees no key, which makes
  // its probabilities 0.
  const float* log2_sum = nullptr;
};

std::size_t statistics_bytes(const ops::AttentionShape& shape);

// Fills the workspace from its beginning.
Statistics prepare_statistics(const Context& context, const ops::AttentionBackward& call);

}  // namespace lockstep::cuda::attention
