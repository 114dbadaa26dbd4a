#include "lockstep/ops/ops.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace ops {

double sum_of_runs(std::span<const double> runs) {
  double sum = 0;
  for (std::size_t first = 0; first < runs.size(); first += kSpanRuns) {
    double span = 0;
    for (const double run : runs.subspan(first, std::min(kSpanRuns, runs.size() - first))) {
      span += run;
    }
    sum += span;
  }
  return sum;
}

}  // namespace ops

std::byte* Ops::scratch_memory(std::size_t needed) const {
  if (scratch_.bytes() < needed) {
    fail(ErrorCode::kInvalidArgument,
         "an operation needs {} bytes of scratch memory and was given {}; use_scratch() takes them",
         needed, scratch_.bytes());
  }
  return scratch_.data();
}

}  // namespace lockstep
