// The payload that a rank sends to ranks of other nodes in a call by NCCL.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/comm/call.h"

namespace lockstep::nccl {

// `nodes` has the node of each rank. In a ring only the last rank of a node sends to another node,
// and that is all it sends.
std::uint64_t bytes_across_of_ring(const Call& call, int rank, std::span<const int> nodes);
// Every rank sends to every rank. Reductions exchange parts, and all_reduce and reduce then
// results.
std::uint64_t bytes_across_of_exchange(const Call& call, int rank, std::span<const int> nodes);

}  // namespace lockstep::nccl
