// Sends and receives of a step schedule.
#pragma once

#include "lockstep/plan/pipeline/step_schedule.h"

namespace lockstep::plan {

// Puts the messages between the computations of a schedule that has none.
//
// The order can not deadlock, also where a send returns only when the peer receives (rendezvous):
// all computations and messages are put in one order by time, with every computation taking one
// unit. A message stands at the end of its computation, before the computations that begin then.
// Every stage's list is its part of that one order. So whatever is first in it among the actions
// that are left can run: both of its stages have come to it.
void add_messages(StepSchedule& schedule);

}  // namespace lockstep::plan
