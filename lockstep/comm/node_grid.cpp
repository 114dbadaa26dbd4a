#include "lockstep/comm/node_grid.h"

#include <set>

namespace lockstep {

std::vector<int> NodeGrid::ranks_of_node(int node) const {
  std::vector<int> all;
  for (int place = 0; place < places; ++place) all.push_back(rank_at(node, place));
  return all;
}

std::vector<int> NodeGrid::ranks_of_lane(int place) const {
  std::vector<int> all;
  for (int node = 0; node < nodes; ++node) all.push_back(rank_at(node, place));
  return all;
}

std::optional<NodeGrid> node_grid(std::span<const int> nodes) {
  const auto count = static_cast<int>(std::set<int>(nodes.begin(), nodes.end()).size());
  const auto ranks = static_cast<int>(nodes.size());
  if (count == 0 || ranks % count != 0) return std::nullopt;
  const NodeGrid grid{.nodes = count, .places = ranks / count};
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = grid.rank_at(grid.node_of(rank), 0);
    // As many nodes as runs of equal numbers, so that no two runs are of one node.
    if (nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(first)]) {
      return std::nullopt;
    }
  }
  return grid;
}

}  // namespace lockstep
