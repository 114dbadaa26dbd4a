// What attention in a ring does not support, read before a run starts.
#pragma once

#include <string>

#include "lockstep/train/options/options.h"

namespace lockstep::train {

// The setting that parallel.context_attention = "ring" does not support, "model.window = 512" where
// sequences are longer than that; empty: none.
std::string ring_limit(const TrainOptions& options);

}  // namespace lockstep::train
