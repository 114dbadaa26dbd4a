// A grid of ranks: the same number on every node, numbered node by node.
//
//   node    0       1       2          a rank's *place* is its number on its node; ranks of the
//   rank    0 1     2 3     4 5        same place on all nodes are a *lane*: 0 2 4
//   place   0 1     0 1     0 1
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace lockstep {

struct NodeGrid {
  int nodes = 1;
  int places = 1;  // ranks on each node

  int ranks() const { return nodes * places; }
  int node_of(int rank) const { return rank / places; }
  int place_of(int rank) const { return rank % places; }
  int rank_at(int node, int place) const { return node * places + place; }
  std::vector<int> ranks_of_node(int node) const;   // by place
  std::vector<int> ranks_of_lane(int place) const;  // by node
};

// From the node of each rank; nothing if they do not form a grid.
std::optional<NodeGrid> node_grid(std::span<const int> nodes);

}  // namespace lockstep
