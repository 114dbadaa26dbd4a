// A grid of workers: the same number on every node, numbered node by node.
//
//   node       0       1       2          a worker's *place* is its number on its node; workers
//   worker     0 1     2 3     4 5        of the same place on all nodes are a *lane*: 0 2 4
//   place      0 1     0 1     0 1
#pragma once

#include <optional>
#include <span>

namespace lockstep::parallel {

struct MachineGrid {
  int machines = 1;
  int places = 1;  // workers on each node

  int machine_of(int worker) const { return worker / places; }
  int place_of(int worker) const { return worker % places; }
  int worker_at(int machine, int place) const { return machine * places + place; }
};

// From the node of each worker; nothing if they do not form such a grid.
std::optional<MachineGrid> machine_grid(std::span<const int> machines);

// The number of different nodes.
int count_machines(std::span<const int> machines);

// A rank among those of its node.
struct NodePlace {
  int rank = 0;
  int ranks = 1;
};
NodePlace node_place(std::span<const int> machines, int rank);

}  // namespace lockstep::parallel
