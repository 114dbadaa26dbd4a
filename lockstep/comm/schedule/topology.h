// The network for which the cost model estimates schedules.
//
//            spine                   Ranks of one node use the inner link; every rank has its own
//          /       \                 port there. Nodes use the outer link; the ranks of a node
//      leaf 0     leaf 1             share its one port. Nodes are connected to leaf switches,
//      /   \      /   \              whose uplinks to the spine are shared by all their nodes.
//    n0    n1   n2    n3             Every link carries its bandwidth in both directions at once.
//   0 1   2 3  4 5   6 7
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
  std::vector<int> machines;    // of every rank, numbered from 0 without gaps
  Link inner;                   // inside a node
  Link outer;                   // between nodes
  int machines_per_leaf = 0;    // 0: one switch connects all nodes, without a spine
  double oversubscription = 1;  // bandwidth of a leaf's ports : of its uplinks
  double spine_alpha = 0;       // added to the start-up of a message over the spine
  double gamma = 0;             // seconds to combine one byte

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
// ranks_per_machine, machines_per_leaf, oversubscription, spine_alpha, gamma. Without an inner
// link, the outer one is used. Throws Error(kInvalidArgument) that suggests the nearest key.
struct Network {
  Link inner;
  Link outer;
  int ranks_per_machine = 1;
  int machines_per_leaf = 0;
  double oversubscription = 1;
  double spine_alpha = 0;
  double gamma = 0;

  Topology with_ranks(int ranks) const;
  Topology with_machines(std::vector<int> machines) const;  // of every rank, in any numbering
};
Network parse_network(std::string_view text);
std::string describe(const Network& network);

}  // namespace lockstep::schedule
