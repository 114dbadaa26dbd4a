// What the links between ranks can do, measured between real ranks and remembered per network.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep {

struct Links {
  schedule::Link inner;  // rank to rank inside a machine, through rings in shared memory
  schedule::Link outer;  // rank to rank over TCP
  double gamma = 0;      // seconds to combine one byte
  std::string
      source;  // "measured", "remembered", "assumed", "emulated"; for the explanation of a choice
};

// Round figures for when nothing may be measured: comm.measure = false.
Links assumed_links();

// Those of comm.emulate, which all ranks know without measuring: between all of them, or, where
// there are emulated machines, between those.
Links emulated_links(const LinkEmulation& link, bool has_hosts);

// Error for a comm.emulate that is not of its form (kInvalidArgument) or that the other options
// leave no way to have (kUnsupported). To be called before ranks meet.
void check_emulation(const CommOptions& options);

// Called by all ranks of the world together, once, before any call is selected by cost. Rank 0
// looks up `network` in the cache of the options; where it is not there, pairs of ranks time
// messages and rank 0 remembers the result. `machines` of all ranks; with `all_tcp` ranks of the
// same machine are joined by TCP, too. All ranks return the same figures.
Links find_links(Communicator& world, const std::vector<int>& machines, bool all_tcp,
                 const std::string& network, const CommOptions& options);

}  // namespace lockstep
