// A common clock: the offset from each worker's clock to rank 0's.
//
// Processes of one node share the steady clock, and the offset is exact. Between nodes a
// worker asks rank 0 for its time several times and uses the answer with the shortest round trip:
//
//   worker   asks at a              b  reads t
//                     \           /                offset = t - (a + b) / 2
//   rank 0             says t ___/
//
// The error is at most half of the shortest round trip. Clocks drift by about ten microseconds a
// second, so the offset is valid only for a short time.
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
// The same on the asking side; `ask` returns the time of the other clock.
std::int64_t estimated_clock_offset(const ClockReading& ask, const ClockReading& clock);

// An identifier of the steady clock of this process: the boot id and the time namespace. Empty:
// unknown.
std::string identity_of_clock();

}  // namespace lockstep::parallel
