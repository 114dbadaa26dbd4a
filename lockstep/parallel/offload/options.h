// What lies elsewhere than on the device: the keys offload.*.
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
  std::string folder;     // of the file tier; empty: that of temporary files
  std::string bandwidth;  // of a slower disk; empty: this one's

  // What of it a replica takes. Throws Error(kInvalidArgument) for a bandwidth that is none.
  io::TierFileOptions file() const;
};

// Throws Error(kInvalidArgument) or Error(kUnsupported) for settings that do not fit together.
void check(const OffloadOptions& offload, const ParallelOptions& options,
           const WorkerPosition& position);

// Declares the keys; `options` must outlive `config` and stay in place.
void bind(Config& config, OffloadOptions& options);

}  // namespace lockstep::parallel
