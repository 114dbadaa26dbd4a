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

// Runs and times every algorithm once. Those near the best are timed again in three rounds of
// several launches in a row; the median counts. Among those within one percent of the best the
// first in cuBLASLt's order wins, so that noise does not decide.
//
// The content of D is undefined afterwards. If D is also C, the products go to temporary memory
// instead. Waits for the stream. Returns nothing if there is no memory, or if no algorithm runs.
std::optional<Fastest> fastest(Plan& plan, std::span<const Algorithm> algorithms,
                               const Operands& operands, const Context& context);

}  // namespace lockstep::cuda
