// The blocks that a call moves between ranks, in bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/comm/call.h"

namespace lockstep::cuda {

inline std::size_t bytes_of(const ConstData& data) { return data.count * size_of(data.dtype); }

// Of a rank: what it gives to each rank, from `in` on, and what it gets from each, from `out` on.
struct MovedBlocks {
  MovedBlocks(const Call& call, int rank, int size);

  bool are_shared = false;  // all ranks read the same block of a rank
  std::vector<std::size_t> in_first, in_bytes, out_first, out_bytes;  // of each rank

  std::size_t most() const;  // of one block
};

}  // namespace lockstep::cuda
