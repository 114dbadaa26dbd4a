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
#include <string>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel {

// Nanoseconds from the steady clock of this process to that of rank 0's. Called by all ranks.
std::int64_t clock_offset(Communicator& world);

using ClockReading = std::function<std::int64_t()>;  // nanoseconds

// The estimate between clocks of any kind. Called by all ranks.
std::int64_t estimated_clock_offset(Communicator& world, const ClockReading& clock);
// The same at the one who asks; `ask` gets the time of the other clock from where that is.
std::int64_t estimated_clock_offset(const ClockReading& ask, const ClockReading& clock);

// What tells the steady clock of this process from others: the boot that it counts from, and the
// namespace that may shift it. Empty: not known.
std::string identity_of_clock();

}  // namespace lockstep::parallel
