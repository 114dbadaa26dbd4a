// Finds the fastest of several algorithms by running them, on the real operands.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/linear/plan.h"

namespace lockstep::cuda {

struct Fastest {
  std::size_t index = 0;
  double microseconds = 0;
};

// All are run once and timed once; those near the best are timed again in three rounds, each with
// several launches in a row, and the median counts. Of those within one percent of the best the
// first is taken: cuBLASLt's own order decides what noise would.
//
// D holds anything afterwards, unless it is C as well: then the products go to memory that is
// allocated here and freed. Waits for the stream. Nothing is returned where there is no memory, or
// where no algorithm runs.
std::optional<Fastest> fastest(Plan& plan, std::span<const Algorithm> algorithms,
                               const Operands& operands, const Context& context);

}  // namespace lockstep::cuda
