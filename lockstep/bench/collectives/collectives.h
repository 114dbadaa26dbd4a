// `lockstep bench collectives`: this library and its peers, interleaved in one run.
#pragma once

#include "lockstep/bench/collectives/plan.h"

namespace lockstep::bench {

// Prints results as they are measured; true if every result of this library was correct. Peers that
// fail or are wrong are reported and not compared with. Throws Error before anything is started if
// the plan is invalid or the results cannot be written.
bool run_collectives(CollectivesPlan plan);

}  // namespace lockstep::bench
