// Samples the next token from logits: ops::Sampler with a seed.
//
// In this order: logits are divided by the temperature; the `top_k` most probable tokens are kept,
// and of these the smallest set whose probabilities sum to `top_p`; one of them is drawn. Ties go
// to the smaller token id. A draw is a pure function of seed, position and logits, so a text can be
// reproduced, also from its middle.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/ops/sampler.h"

namespace lockstep::nn {

struct SamplingOptions {
  double temperature = 1;  // 0: always the most probable token
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
