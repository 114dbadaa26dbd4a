// Fills the tensors of a case.
#pragma once

#include <cstdint>

#include "lockstep/bench/ops/description.h"

namespace lockstep::bench {

// Writes a tensor on any device; a pure function of its type, its length and the seed. Large
// tensors repeat the numbers of their beginning, for drawing a hundred million would take longer
// than what they are wanted for.
void fill(const Tensor& tensor, const Fill& how, std::uint64_t seed);

}  // namespace lockstep::bench
