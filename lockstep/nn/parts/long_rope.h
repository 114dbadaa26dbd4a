// LongRoPE's rotary positions, for contexts many times longer than those that a model was first
// trained with: every pair of a head has a factor of its own by which it turns slower, one for
// texts of up to the original length and another for longer ones.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

struct LongRope {
  std::int64_t original_positions = 0;
  std::vector<float> short_factors;  // of every pair, for texts of up to original_positions
  std::vector<float> long_factors;   // for longer ones
  float amplitude = 1;               // what turns is multiplied by it

  // The factors for texts of that many tokens, in host memory of this object.
  Tensor factors(std::int64_t positions) const;
};

// The usual amplitude for texts that are `factor` times as long as the original ones: attention to
// more tokens needs larger scores to be as sharp.
double usual_amplitude(double factor, std::int64_t original_positions);

// Throws Error(kInvalidArgument) where the lists do not have a factor for every pair of a head of
// which that many elements turn.
void check_long_rope(const LongRope& rope, std::int64_t turned_width);

}  // namespace lockstep::nn
