// What the launcher of a node needs before it can start ranks: a rendezvous that all ranks can
// reach, and a link to the other nodes' launchers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/rendezvous/node_link.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/launch/launcher.h"

namespace lockstep {

struct NodeSetup {
  Token token;
  std::unique_ptr<RendezvousServer> server;  // on node 0
  std::unique_ptr<NodeLink> link;            // with several nodes
  HostPort rendezvous;                       // where ranks find the server
  HostPort master;                           // MASTER_ADDR and MASTER_PORT for other libraries
};

// A job on one node gets a new token; several nodes must find the same one (find_token). Waits for
// the launchers of all nodes; throws Error.
NodeSetup set_up_node(const LaunchOptions& options);

// "NAME=value" for all of this process's environment, the options' and the variables of a rank.
std::vector<std::string> rank_environment(const LaunchOptions& options, const NodeSetup& setup,
                                          int local_rank);

}  // namespace lockstep
