// The worker for which a memory plan is made.
#pragma once

#include <cstdint>

namespace lockstep::parallel {

// The group of a plan's requests for communication.
inline constexpr const char* kCommunicationGroup = "communication";

struct WorkerPosition {
  int workers = 1;
  int worker = 0;
  std::int64_t most_micro_batches = 1;  // the most in one worker's share of a step
};

}  // namespace lockstep::parallel
