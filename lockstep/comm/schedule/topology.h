// What ranks are joined by: the network that the cost model prices schedules on.
//
//            spine                   Ranks of one machine use the inner link; every rank has a port
//          /       \                 of its own there. Machines use the outer link; the ranks of a
//      leaf 0     leaf 1             machine share its one port. Machines hang on leaf switches,
//      /   \      /   \              whose uplinks to the spine are shared by all their machines.
//    m0    m1   m2    m3             Every link carries its bandwidth in both directions at once.
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
  Link inner;                   // inside a machine
  Link outer;                   // between machines
  int machines_per_leaf = 0;    // 0: one switch joins all machines, and there is no spine
  double oversubscription = 1;  // a leaf's ports to its machines : its uplinks
  double spine_alpha = 0;       // what the way over the spine adds to a message's start-up
  double gamma = 0;             // seconds to combine one byte

  int ranks() const { return static_cast<int>(machines.size()); }
  int machine_of(int rank) const { return machines[static_cast<std::size_t>(rank)]; }
  int leaf_of(int machine) const;
  double uplink_bandwidth(int leaf) const;
};

// Every rank a machine of its own, all joined alike.
Topology flat_topology(int ranks, Link link);

// Ranks in order on machines of `ranks_per_machine`, the last one perhaps smaller.
Topology machines_topology(int ranks, int ranks_per_machine, Link inner, Link outer);

// Links of the field by name: round figures from their makers' data sheets, start-up times as
// collective libraries commonly see them.
struct NamedLink {
  std::string_view name;
  std::string_view what;
  Link link;
};
std::span<const NamedLink> named_links();

// What "alpha=5us,bandwidth=100Gbit,inner=nvlink,ranks_per_machine=8" says, apart from the ranks.
// Keys: alpha, bandwidth, inner_alpha, inner_bandwidth, inner, outer (names of links),
// ranks_per_machine, machines_per_leaf, oversubscription, spine_alpha, gamma. Where no inner link
// is given it is as the outer one.
// Throws Error(kInvalidArgument) that names the nearest key.
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
