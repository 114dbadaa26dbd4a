// Which token comes next, by the logits of all of them: ops::Sampler with a seed of its own.
//
// The choice goes in this order: logits are divided by the temperature; of the tokens the `top_k`
// likeliest stay, and of these the fewest likeliest whose probabilities add up to `top_p`; one of
// them is drawn by its probability. Equally likely ones count as likelier the smaller their number.
// A draw is a pure function of seed, position and logits, so a text can be generated again, or from
// its middle on.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/ops/sampler.h"

namespace lockstep::nn {

struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest token
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;        // over 0
  std::uint64_t seed = 0;

  ops::ChoiceOptions choice() const {
    return {.temperature = temperature, .top_k = top_k, .top_p = top_p};
  }
};

// The seed of the draws.
std::uint64_t sampling_seed(std::uint64_t seed);

// Keeps its workspace. One thread at a time.
class Sampler {
 public:
  // Throws Error(kInvalidArgument) for options out of their range.
  explicit Sampler(const SamplingOptions& options);

  // The token for a position of the text. Throws Error(kInvalidArgument) without logits, where one
  // is NaN or +infinity, and where all are -infinity.
  std::int32_t sample(std::span<const float> logits, std::uint64_t position) {
    return sampler_.sample(logits, seed_, position);
  }

 private:
  ops::Sampler sampler_;
  std::uint64_t seed_;
};

}  // namespace lockstep::nn
