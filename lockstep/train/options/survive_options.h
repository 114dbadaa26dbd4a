// What a job does so that it survives the loss of ranks (docs/reliability.md).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/base/config/config.h"
#include "lockstep/parallel/strategy/options.h"

namespace lockstep::train {

struct SurviveOptions {
  bool mirror = false;  // every worker's shard is mirrored in another's memory
  // How long ranks wait for one before it counts as hung; nothing: comm.timeout.
  std::optional<std::chrono::nanoseconds> hang_timeout;
  double evict_slow = 0;  // a worker that takes so many times as long as the others; 0: none
};
// Why nobody can tell which rank of a job is slow; empty: it can be told.
std::string cannot_evict(const parallel::ParallelOptions& options);
// Declares the keys survive.*.
void bind(Config& config, SurviveOptions& options);

}  // namespace lockstep::train
