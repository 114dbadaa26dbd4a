// The blocks that a call moves between ranks, in bytes.
#pragma once

#include <array>
#include <cstddef>

#include "lockstep/comm/call.h"
#include "lockstep/comm/cuda/control.h"

namespace lockstep::cuda {

inline std::size_t bytes_of(const ConstData& data) { return data.count * size_of(data.dtype); }

// Of a rank: what it gives to each rank, from `in` on, and what it gets from each, from `out` on.
struct MovedBlocks {
  MovedBlocks(const Call& call, int rank, int size);

  bool are_shared = false;  // all ranks read the same block of a rank
  std::array<std::size_t, kMostRanks> in_first{}, in_bytes{}, out_first{}, out_bytes{};

  std::size_t most() const;  // of one block
};

}  // namespace lockstep::cuda
