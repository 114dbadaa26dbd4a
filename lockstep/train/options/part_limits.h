// Parts of models that not every device or mesh supports: one table, read before a run starts.
#pragma once

#include <string>

#include "lockstep/train/options/options.h"

namespace lockstep::train {

enum class PartPlace {
  kGpu,
  kRing,  // parallel.context_attention = "ring"
};

// The first part of the model that is not supported there, and what to do about it.
struct PartLimit {
  std::string part;    // "model.window = 512"; empty: all are supported
  std::string advice;  // "leave it out"
};
PartLimit part_limit(const TrainOptions& options, PartPlace place);

}  // namespace lockstep::train
