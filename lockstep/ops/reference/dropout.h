// What dropout does to the element at an index.
#pragma once

#include <cstdint>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/arguments.h"

namespace lockstep::ops::reference {

// 0, or what a kept element is multiplied by.
inline double dropout_factor(const Dropout& dropout, std::int64_t index) {
  if (dropout.probability == 0) return 1;
  const double keep = 1 - dropout.probability;
  const std::uint64_t position = dropout.first + static_cast<std::uint64_t>(index);
  return is_kept(dropout.seed, static_cast<std::uint64_t>(static_cast<double>(dropout.step)),
                 position, keep)
             ? 1 / keep
             : 0;
}

}  // namespace lockstep::ops::reference
