// The rank whose calls of the simulated NCCL never end, until they are aborted.
#pragma once

#include <atomic>

namespace lockstep::nccl {

inline constexpr int kNoRank = -1;
extern std::atomic<int> stuck_rank;

}  // namespace lockstep::nccl
