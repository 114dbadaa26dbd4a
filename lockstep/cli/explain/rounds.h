// Explains a schedule round by round.
#pragma once

#include <string>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::cli {

// Describes the algorithm, the messages of every round, what every rank has after it, and totals
// for a vector of `bytes` with their closed forms. Also verifies the schedule.
std::string explain_rounds(const schedule::Algorithm& algorithm, const schedule::Schedule& schedule,
                           double bytes);

}  // namespace lockstep::cli
