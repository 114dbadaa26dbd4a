// A dropout as kernels take it.
#pragma once

#include <cstdint>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/arguments.h"

namespace lockstep::cpu {

struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t first = 0;      // the position of element 0
  std::uint32_t last_kept = 0;  // an element stays where its random word is not above
  float factor = 1;             // what a kept element is multiplied by
};

inline DropoutKey dropout_key(const ops::Dropout& dropout) {
  const double keep = 1 - dropout.probability;
  const std::uint64_t limit = keep_limit(keep);
  return {.seed = dropout.seed,
          .step = static_cast<std::uint64_t>(static_cast<double>(dropout.step)),
          .first = dropout.first,
          .last_kept = static_cast<std::uint32_t>(limit == 0 ? 0 : limit - 1),
          .factor = limit == 0 ? 0 : static_cast<float>(1 / keep)};
}

}  // namespace lockstep::cpu
