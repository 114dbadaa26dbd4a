// Workers on machines: as many on each, one machine's after the other's.
//
//   machine    0       1       2          a worker's *place* is its number on its machine; workers
//   worker     0 1     2 3     4 5        of the same place on all machines are a *lane*: 0 2 4
//   place      0 1     0 1     0 1
#pragma once

#include <optional>
#include <span>

namespace lockstep::parallel {

struct MachineGrid {
  int machines = 1;
  int places = 1;  // workers on each of them

  int machine_of(int worker) const { return worker / places; }
  int place_of(int worker) const { return worker % places; }
  int worker_at(int machine, int place) const { return machine * places + place; }
};

// From the machine of each worker; nothing where they are not spread like this.
std::optional<MachineGrid> machine_grid(std::span<const int> machines);

// How many there are.
int count_machines(std::span<const int> machines);

}  // namespace lockstep::parallel
