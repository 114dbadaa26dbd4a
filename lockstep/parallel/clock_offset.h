// One clock for all workers: what each has to add to its own to read rank 0's.
//
// Processes of one machine read the same steady clock, and nothing is estimated. Across machines a
// worker asks rank 0 for its time, several times, and believes the answer that came back fastest:
//
//   worker   asks at a              b  reads t
//                     \           /                offset = t - (a + b) / 2
//   rank 0             says t ___/
//
// The error is half of what the fastest round trip took at most. Clocks drift by some ten
// microseconds a second: the offset is of now.
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel {

// Nanoseconds from the steady clock of this process to that of rank 0's. Called by all ranks.
std::int64_t clock_offset(Communicator& world);

// The estimate between clocks of any kind, which give nanoseconds. Called by all ranks.
std::int64_t estimated_clock_offset(Communicator& world,
                                    const std::function<std::int64_t()>& clock);

}  // namespace lockstep::parallel
