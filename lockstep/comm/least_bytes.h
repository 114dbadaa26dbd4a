// The fewest bytes that ranks must send each other for a collective. This bound replaces the count
// of sent bytes where there is none: in shared memory ranks read what others wrote, and MPI does
// not report its traffic.
#pragma once

#include <cstdint>

#include "lockstep/comm/call.h"
#include "lockstep/comm/fingerprint.h"

namespace lockstep {

// Of payload by `rank` of `ranks`. N ranks, block = the data of one rank, S = all of it:
//   all_reduce                   2 (N-1)/N S
//   broadcast, reduce            (N-1)/N S: the (N-1) S that have to move, evenly
//   scatter, gather              (N-1)/N blocks, likewise
//   all_gather, reduce_scatter   N-1 blocks
//   all_to_all                   every block but its own
// Blocks that vary count as they are, of the rank that gives them.
std::uint64_t least_bytes_sent(const Call& call, int rank, int ranks);
// The same where the call's fingerprint is known: on the path of 8-byte calls.
std::uint64_t least_bytes_sent(const Call& call, const Fingerprint& fingerprint, int rank,
                               int ranks);

}  // namespace lockstep
