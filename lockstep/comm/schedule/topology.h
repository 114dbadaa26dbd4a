// The network for which the cost model estimates schedules.
//
//            spine                   Ranks of one node use the inner link; every rank has a port
//          /       \                 of its own there. Nodes use the outer link: the ranks of a
//      leaf 0     leaf 1             node share its NICs, the first ranks the first.
//      /   \      /   \              Nodes hang on leaf switches, whose uplinks to the spine
//    n0    n1   n2    n3             all their nodes share. Every link carries its bandwidth in
//   0 1   2 3  4 5   6 7             both directions at once.
//
// Between ranks and NICs there may be PCIe roots: the ranks of a root share its bandwidth for what
// leaves the node, and where the inner link goes over PCIe too, for what goes to other roots.
//
// Nodes on a torus have no switches but an outer link to each neighbour. A message takes the
// shorter way round each extent, the fastest extent first, and loads every link that it crosses.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::schedule {

struct Link {
  double alpha = 0;      // start-up of one message, in seconds
  double bandwidth = 1;  // bytes per second in each direction

  bool operator==(const Link&) const = default;
};

struct Topology {
  std::vector<int> machines;      // of every rank, numbered from 0 without gaps
  Link inner;                     // inside a node
  Link outer;                     // between nodes
  int machines_per_leaf = 0;      // 0: one switch joins all nodes, and there is no spine
  double oversubscription = 1;    // a leaf's ports to its nodes : its uplinks
  double spine_alpha = 0;         // what the way over the spine adds to a message's start-up
  double gamma = 0;               // seconds to combine one byte
  int nics_per_machine = 1;       // each of the outer link's bandwidth
  int ranks_per_root = 0;         // 0: nothing is shared between ranks and NICs
  double root_bandwidth = 0;      // bytes per second of a root, in each direction
  bool inner_over_roots = false;  // whether messages inside a node cross roots
  std::vector<int> torus;         // extents, slowest first, of nodes; empty: switches
  double hop_alpha = 0;           // what every link on the way but the first adds to a start-up

  int count_machines() const;
  int ranks() const { return static_cast<int>(machines.size()); }
  int machine_of(int rank) const { return machines[static_cast<std::size_t>(rank)]; }
  int leaf_of(int machine) const;
  double uplink_bandwidth(int leaf) const;
};

// Every rank on its own node, with the same link between all.
Topology flat_topology(int ranks, Link link);

// Ranks in order on nodes of `ranks_per_machine`; the last node may be smaller.
Topology machines_topology(int ranks, int ranks_per_machine, Link inner, Link outer);

// Common links by name: bandwidths from data sheets, and start-up times that are typical for
// collective libraries.
struct NamedLink {
  std::string_view name;
  std::string_view what;
  Link link;
};
std::span<const NamedLink> named_links();

// What "alpha=5us,bandwidth=100Gbit,inner=nvlink,ranks_per_machine=8" says, apart from the ranks.
// Keys: alpha, bandwidth, inner_alpha, inner_bandwidth, inner, outer (names of links),
// ranks_per_machine, machines_per_leaf, oversubscription, spine_alpha, gamma, nics_per_machine,
// ranks_per_root, root_bandwidth, inner_over_roots, torus, hop_alpha. Where no inner link is given
// it is as the outer one.
// Throws Error(kInvalidArgument) that names the nearest key.
struct Network {
  Link inner;
  Link outer;
  int ranks_per_machine = 1;
  int machines_per_leaf = 0;
  double oversubscription = 1;
  double spine_alpha = 0;
  double gamma = 0;
  int nics_per_machine = 1;
  int ranks_per_root = 0;
  double root_bandwidth = 0;
  bool inner_over_roots = false;
  std::vector<int> torus;
  double hop_alpha = 0;

  // Error(kInvalidArgument) where the nodes are not those of the torus.
  Topology with_ranks(int ranks) const;
  Topology with_machines(std::vector<int> machines) const;  // of every rank, in any numbering
};
Network parse_network(std::string_view text);
std::string describe(const Network& network);

}  // namespace lockstep::schedule
