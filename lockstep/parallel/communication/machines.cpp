#include "lockstep/parallel/communication/machines.h"

#include <set>

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
  const int count = count_machines(machines);
  const auto workers = static_cast<int>(machines.size());
  if (count == 0 || workers % count != 0) return std::nullopt;
  const MachineGrid grid{.machines = count, .places = workers / count};
  for (int worker = 0; worker < workers; ++worker) {
    const int first = grid.worker_at(grid.machine_of(worker), 0);
    // As many nodes as runs of equal numbers, so that no two runs are of one node.
    if (machines[static_cast<std::size_t>(worker)] != machines[static_cast<std::size_t>(first)]) {
      return std::nullopt;
    }
  }
  return grid;
}

}  // namespace lockstep::parallel
