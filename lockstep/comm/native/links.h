// Latency and bandwidth of the links between ranks, measured once and cached per network.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep {

struct Links {
  schedule::Link inner;  // between ranks of a node, through rings in shared memory
  schedule::Link outer;  // between ranks over TCP
  double gamma = 0;      // seconds to combine one byte
  std::string
      source;  // "measured", "remembered", "assumed", "emulated"; for the explanation of a choice
};

// Typical figures, for comm.measure = false.
Links assumed_links();

// The links of comm.emulate, which need no measurement: between all ranks, or between emulated
// nodes if there are any.
Links emulated_links(const LinkEmulation& link, bool has_hosts);

// Throws for a malformed comm.emulate (kInvalidArgument) or one that other options rule out
// (kUnsupported). Call it before the rendezvous.
void check_emulation(const CommOptions& options);

// Called once by all ranks of the world together, before any call is selected by cost. Rank 0 looks
// up `network` in the cache; if it is not there, pairs of ranks time messages and rank 0 caches the
// result. `machines` are the nodes of all ranks; with `all_tcp`, ranks of one node also use TCP.
// All ranks return the same figures.
Links find_links(Communicator& world, const std::vector<int>& machines, bool all_tcp,
                 const std::string& network, const CommOptions& options);

}  // namespace lockstep
