// What a job does so that it survives the loss of ranks (docs/reliability.md).
#pragma once

#include <chrono>
#include <optional>

#include "lockstep/base/config/config.h"

namespace lockstep::train {

struct SurviveOptions {
  bool mirror = false;  // every worker's shard is mirrored in another's memory (ZeRO)
  // How long ranks wait for one before it counts as hung; nothing: comm.timeout.
  std::optional<std::chrono::nanoseconds> hang_timeout;
};
// Declares the keys survive.*.
void bind(Config& config, SurviveOptions& options);

}  // namespace lockstep::train
