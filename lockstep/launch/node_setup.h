// What the launcher of a node needs before it can start ranks: a rendezvous that all ranks can
// reach, and a link to the other nodes' launchers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/rendezvous/node_link.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/launch/job_message.h"
#include "lockstep/launch/launcher.h"

namespace lockstep {

struct NodeSetup {
  Token token;
  std::unique_ptr<RendezvousServer> server;  // on node 0
  std::unique_ptr<NodeLink> link;            // with several nodes
  HostPort rendezvous;                       // where ranks find the server
  std::vector<NodeFacts> nodes;              // of all, in order
  std::string job;                           // its name, random: of node 0's launcher
  int generation = 0;
  // In this generation: the ranks of this node, the number of the first, the ranks of the job.
  int ranks = 1;
  int first_rank = 0;
  int size = 1;
  HostPort master;  // MASTER_ADDR and MASTER_PORT for other libraries
};

// A job on one node gets a new token; several nodes must find the same one (find_token). Waits for
// the launchers of all nodes; throws Error.
NodeSetup set_up_node(const LaunchOptions& options);

// What a node says about itself when it joins; see NodeFacts about `generation` and `kept`.
NodeFacts facts_of_node(const LaunchOptions& options, const NodeSetup& setup, int generation = -1,
                        std::vector<int> kept = {});
// All nodes' facts as they have come over the link; a node that is not there has no ranks. Throws
// Error(kMismatch) if they were started differently.
std::vector<NodeFacts> compare_nodes(const LaunchOptions& options, const NodeLink& link);

// A free port for MASTER_PORT, on node 0.
int free_master_port(const LaunchOptions& options, const NodeSetup& setup);

// "NAME=value" for all of this process's environment, the options' and the variables of a rank.
std::vector<std::string> rank_environment(const LaunchOptions& options, const NodeSetup& setup,
                                          int local_rank);
// The same for a spare.
std::vector<std::string> spare_environment(const LaunchOptions& options, const NodeSetup& setup);

}  // namespace lockstep
