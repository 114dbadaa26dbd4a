// Parts of models that attention in a ring does not support, read before a run starts.
#pragma once

#include <string>

#include "lockstep/train/options/options.h"

namespace lockstep::train {

// The part of the model that is not supported, and what to do about it.
struct PartLimit {
  std::string part;    // "model.window = 512"; empty: all are supported
  std::string advice;  // "leave it out"
};

// With parallel.context_attention = "ring".
PartLimit ring_limit(const TrainOptions& options);

}  // namespace lockstep::train
