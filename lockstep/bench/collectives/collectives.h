// `lockstep bench collectives`: this library and its peers, interleaved in one run.
#pragma once

#include "lockstep/bench/collectives/plan.h"

namespace lockstep::bench {

// Prints as it goes; true when every result of this library was correct. Peers that fail or are
// wrong are reported, and do not count as rivals. Throws Error before anything is started when the
// plan cannot be settled or the results could not be written.
bool run_collectives(CollectivesPlan plan);

}  // namespace lockstep::bench
