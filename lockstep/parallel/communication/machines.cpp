#include "lockstep/parallel/communication/machines.h"

#include <set>

#include "lockstep/comm/node_grid.h"

namespace lockstep::parallel {

int count_machines(std::span<const int> machines) {
  return static_cast<int>(std::set<int>(machines.begin(), machines.end()).size());
}

NodePlace node_place(std::span<const int> machines, int rank) {
  NodePlace place{.rank = 0, .ranks = 0};
  for (std::size_t other = 0; other < machines.size(); ++other) {
    if (machines[other] != machines[static_cast<std::size_t>(rank)]) continue;
    if (static_cast<int>(other) < rank) ++place.rank;
    ++place.ranks;
  }
  return place;
}

std::optional<MachineGrid> machine_grid(std::span<const int> machines) {
  const std::optional<NodeGrid> grid = node_grid(machines);
  if (!grid) return std::nullopt;
  return MachineGrid{.machines = grid->nodes, .places = grid->places};
}

}  // namespace lockstep::parallel
