#include "lockstep/nn/parts/long_rope.h"

#include <cmath>
#include <cstddef>

#include "lockstep/base/error.h"

namespace lockstep::nn {

Tensor LongRope::factors(std::int64_t positions) const {
  const std::vector<float>& chosen = positions > original_positions ? long_factors : short_factors;
  // Operations only read it.
  auto* data = reinterpret_cast<std::byte*>(const_cast<float*>(chosen.data()));
  return {data, DType::kF32, {static_cast<std::int64_t>(chosen.size())}};
}

double usual_amplitude(double factor, std::int64_t original_positions) {
  if (factor <= 1) return 1;
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original_positions)));
}

void check_long_rope(const LongRope& rope, std::int64_t turned_width) {
  const auto pairs = static_cast<std::size_t>(turned_width / 2);
  if (rope.short_factors.size() == pairs && rope.long_factors.size() == pairs) return;
  fail(ErrorCode::kInvalidArgument,
       "longrope has {} short and {} long factors; the {} pairs that turn in a head need {} of "
       "each",
       rope.short_factors.size(), rope.long_factors.size(), pairs, pairs);
}

}  // namespace lockstep::nn
