// Nodes first: reduce to the first rank of each node (its leader), all_reduce between the
// leaders, broadcast inside each node. Only leaders use the network.
#include <algorithm>
#include <bit>
#include <map>

#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/phases.h"

namespace lockstep::schedule {
namespace {

int machine_of(const Shape& shape, int rank) {
  return shape.machines.empty() ? 0 : shape.machines[static_cast<std::size_t>(rank)];
}

// Whether the ranks of each node follow each other, as they mostly do. Every rank of thousands
// asks, so the short ways below matter.
bool are_in_order(const Shape& shape) { return std::ranges::is_sorted(shape.machines); }

Group ranks_on_machine_of(const Shape& shape, int rank) {
  Group group;
  int first = 0;
  int end = shape.ranks;
  if (!shape.machines.empty() && are_in_order(shape)) {
    const auto here = std::ranges::equal_range(shape.machines, machine_of(shape, rank));
    first = static_cast<int>(here.begin() - shape.machines.begin());
    end = static_cast<int>(here.end() - shape.machines.begin());
  }
  for (int other = first; other < end; ++other) {
    if (machine_of(shape, other) != machine_of(shape, rank)) continue;
    if (other == rank) group.index = group.size();
    group.ranks.push_back(other);
  }
  return group;
}

}  // namespace

Machines machines_of(const Shape& shape) {
  Machines machines;
  std::map<int, int> sizes;
  int in_a_row = 0;
  const bool in_order = are_in_order(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int machine = machine_of(shape, rank);
    const bool goes_on = rank > 0 && machine == machine_of(shape, rank - 1);
    in_a_row = goes_on ? in_a_row + 1 : 1;
    const int size = in_order ? in_a_row : ++sizes[machine];
    if (size == 1) machines.leaders.push_back(rank);
    machines.largest = std::max(machines.largest, size);
  }
  return machines;
}

int hierarchical_chunks(const Shape& shape) {
  return static_cast<int>(machines_of(shape).leaders.size());
}

Program all_reduce_hierarchical(const Shape& shape, int rank) {
  const Machines machines = machines_of(shape);
  const Group inside = ranks_on_machine_of(shape, rank);
  const int leaders = static_cast<int>(machines.leaders.size());
  const Range all{0, leaders};
  Accumulator vector(leaders);

  // Small nodes wait for the largest in front of and behind the middle part.
  const int inner_rounds = ceil_log2(machines.largest);
  tree_reduce(vector, inner_rounds - ceil_log2(inside.size()), inside, all);
  const bool halving = std::has_single_bit(static_cast<unsigned>(leaders));
  if (inside.index == 0) {
    Group between{machines.leaders, 0};
    while (between.at(between.index) != rank) ++between.index;
    const Phase reduce_scatter = halving ? halving_reduce_scatter : ring_reduce_scatter;
    const Phase all_gather = halving ? doubling_all_gather : ring_all_gather;
    const int round = reduce_scatter(vector, inner_rounds, between, all);
    all_gather(vector, round, between, all);
  }
  const int outer_rounds = 2 * (halving ? ceil_log2(leaders) : leaders - 1);
  tree_broadcast(vector, inner_rounds + outer_rounds, inside, all);
  return std::move(vector).finish(2 * inner_rounds + outer_rounds);
}

}  // namespace lockstep::schedule
