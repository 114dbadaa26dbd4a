// Which worker of how many a memory plan is made for, before there are any workers.
#pragma once

#include <cstdint>

namespace lockstep::parallel {

// The group of a plan's requests that holds what communication takes.
inline constexpr const char* kCommunicationGroup = "communication";

struct WorkerPosition {
  int workers = 1;
  int worker = 0;
  std::int64_t most_micro_batches = 1;  // of one worker's share of a step
};

}  // namespace lockstep::parallel
