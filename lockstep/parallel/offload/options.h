// The settings of offload: the keys offload.*.
#pragma once

#include <string>

#include "lockstep/base/config/config.h"
#include "lockstep/io/tier_file.h"
#include "lockstep/nn/parameters/tiers.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

struct OffloadOptions {
  nn::Tiers tiers;
  std::string folder;     // of the file tier; empty: the folder of temporary files
  std::string bandwidth;  // an emulated limit; empty: none

  // The options of the file tier. Throws Error(kInvalidArgument) for an invalid bandwidth.
  io::TierFileOptions file() const;
};

// Throws Error(kInvalidArgument) or Error(kUnsupported) for settings that contradict each other.
void check(const OffloadOptions& offload, const ParallelOptions& options,
           const WorkerPosition& position);

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, OffloadOptions& options);

}  // namespace lockstep::parallel
