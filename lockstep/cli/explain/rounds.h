// A schedule told round by round.
#pragma once

#include <string>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::cli {

// What the algorithm is, who sends what to whom in every round and what everyone has after it, and
// totals for a vector of `bytes` beside their closed forms. Verifies the schedule on the way.
std::string explain_rounds(const schedule::Algorithm& algorithm, const schedule::Schedule& schedule,
                           double bytes);

}  // namespace lockstep::cli
