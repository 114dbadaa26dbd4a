#include "lockstep/optim/gradient_norm.h"

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::optim {

double gradient_norm(Ops& ops, std::span<const Tensor> ranges, const Tensor& sums) {
  if (sums.dtype() != DType::kF64 || sums.elements() < ranges.size()) {
    fail(ErrorCode::kInvalidArgument,
         "the norm of {} ranges needs a workspace of one f64 for each; got {} of {}", ranges.size(),
         sums.elements(), name(sums.dtype()));
  }
  const auto count = static_cast<std::int64_t>(ranges.size());
  const Tensor flat = sums.reshaped({static_cast<std::int64_t>(sums.elements())});
  for (std::int64_t i = 0; i < count; ++i) {
    ops.run(
        ops::SumOfSquares{.x = ranges[static_cast<std::size_t>(i)], .result = flat.slice(i, 1)});
  }
  ops.synchronize();
  std::vector<double> squares(ranges.size());
  copy(tensor_of(std::span(squares)), flat.slice(0, count));
  double total = 0;
  for (const double one : squares) total += one;
  return std::sqrt(total);
}

double clip_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1;
}

}  // namespace lockstep::optim
