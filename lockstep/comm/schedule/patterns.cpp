#include "lockstep/comm/schedule/patterns.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {
namespace {

using Visit = std::function<void(const PatternRound&)>;

// Every rank to the one `distance` further on, around the end.
PatternRound shift(int ranks, int distance, bool combines, int times) {
  PatternRound round{.times = times};
  for (int rank = 0; rank < ranks; ++rank) {
    round.messages.push_back({rank, (rank + distance) % ranks, 1, combines});
  }
  return round;
}

void ring(const Shape& shape, const Visit& visit, bool combines) {
  if (shape.ranks > 1) visit(shift(shape.ranks, 1, combines, shape.ranks - 1));
}

void all_reduce_by_ring(const Shape& shape, const Topology&, const Visit& visit) {
  ring(shape, visit, true);
  ring(shape, visit, false);
}

void all_reduce_by_two_rings(const Shape& shape, const Topology& topology, const Visit& visit) {
  const int n = shape.ranks;
  if (n <= 2) return all_reduce_by_ring(shape, topology, visit);
  for (const bool combines : {true, false}) {
    PatternRound round = shift(n, 1, combines, n - 1);
    const PatternRound back = shift(n, n - 1, combines, n - 1);
    round.messages.insert(round.messages.end(), back.messages.begin(), back.messages.end());
    visit(round);
  }
}

// One extent of a grid: lines of `extent` ranks that are `stride` apart, all at work at once.
struct Axis {
  int ranks;
  int extent;
  int stride;
  int chunks;  // in a message

  int index_of(int rank) const { return rank / stride % extent; }
};

std::vector<Axis> axes_of(const Shape& shape, int extents) {
  const std::vector<int> grid = grid_of(shape, extents);
  std::vector<Axis> axes;
  int stride = 1;
  for (std::size_t axis = grid.size(); axis-- > 0;) {
    // What is left of the vector after the faster extents, cut once more.
    axes.push_back(
        {shape.ranks, grid[axis], stride, shape.ranks / stride / std::max(grid[axis], 1)});
    stride *= grid[axis];
  }
  return axes;
}

void rings_along(const Axis& axis, bool combines, const Visit& visit) {
  if (axis.extent < 2) return;
  PatternRound round{.times = axis.extent - 1};
  for (int rank = 0; rank < axis.ranks; ++rank) {
    const int index = axis.index_of(rank);
    const int next = rank + ((index + 1) % axis.extent - index) * axis.stride;
    round.messages.push_back({rank, next, axis.chunks, combines});
  }
  visit(round);
}

// Round t of a line (comm/schedule/mesh.cpp): index i sends to the right while what comes from the
// left reaches it, to the left likewise. All-gather is the same the other way round.
void lines_along(const Axis& axis, bool combines, const Visit& visit) {
  const int last = axis.extent - 1;
  for (int t = 0; t < last; ++t) {
    PatternRound round;
    for (int rank = 0; rank < axis.ranks; ++rank) {
      const int i = axis.index_of(rank);
      const bool right = combines ? i <= t : i >= t;
      const bool left = combines ? last - i <= t : last - i >= t;
      if (i < last && right) {
        round.messages.push_back({rank, rank + axis.stride, axis.chunks, combines});
      }
      if (i > 0 && left) {
        round.messages.push_back({rank, rank - axis.stride, axis.chunks, combines});
      }
    }
    visit(round);
  }
}

using AlongAxis = void (*)(const Axis&, bool, const Visit&);

void all_reduce_by_grid(const Shape& shape, int extents, AlongAxis along, const Visit& visit) {
  std::vector<Axis> axes = axes_of(shape, extents);
  for (const Axis& axis : axes) along(axis, true, visit);
  std::ranges::reverse(axes);
  for (const Axis& axis : axes) along(axis, false, visit);
}

// Segment s passes the edge behind position p in round p + s: from the root away, or reversed.
void chain(const Shape& shape, bool reduces, const Visit& visit) {
  const int n = shape.ranks;
  const int segments = chain_segments(shape);
  const auto rank_at = [&](int position) { return (shape.root + position) % n; };
  for (int round = 0; round < n - 2 + segments && n > 1; ++round) {
    PatternRound one;
    for (int edge = std::max(0, round - segments + 1); edge <= std::min(round, n - 2); ++edge) {
      const int near = reduces ? n - 2 - edge : edge;  // the position nearer to the root
      const int from = rank_at(reduces ? near + 1 : near);
      const int to = rank_at(reduces ? near : near + 1);
      one.messages.push_back({from, to, 1, reduces});
    }
    visit(one);
  }
}

void among_all(const Shape& shape, bool combines, const Visit& visit) {
  if (shape.ranks < 2) return;
  visit({.messages = {{0, 1, 1, combines}}, .among_all = true});
}

// Ranks whose messages leave node and leaf switch with every shift from this to N minus this;
// 0: nodes or leaves are unequal, and each shift is another.
int ranks_of_a_unit(const Topology& topology) {
  const int n = topology.ranks();
  const auto of_first = std::ranges::count(topology.machines, topology.machines.front());
  const int machine = static_cast<int>(of_first);
  const int unit = machine * std::max(1, topology.machines_per_leaf);
  if (!topology.torus.empty() || n % unit != 0) return 0;
  for (int rank = 0; rank < n; ++rank) {
    if (topology.machine_of(rank) != rank / machine) return 0;
  }
  return unit;
}

void pairwise(const Shape& shape, const Topology& topology, const Visit& visit) {
  const int n = shape.ranks;
  const int unit = ranks_of_a_unit(topology);
  const int alike = unit > 0 ? n - 2 * unit + 1 : 0;
  for (int distance = 1; distance < n; ++distance) {
    const bool begins = alike > 0 && distance == unit;
    visit(shift(n, distance, false, begins ? alike : 1));
    if (begins) distance += alike - 1;
  }
}

struct Pattern {
  Collective collective;
  std::string_view algorithm;
  void (*visit)(const Shape& shape, const Topology& topology, const Visit& visit);
};

using enum Collective;
using S = const Shape&;
using T = const Topology&;
using V = const Visit&;
constexpr Pattern kPatterns[] = {
    {kAllReduce, "naive", [](S s, T, V v) { among_all(s, true, v); }},
    {kAllReduce, "ring", all_reduce_by_ring},
    {kAllReduce, "bidirectional_ring", all_reduce_by_two_rings},
    {kAllReduce, "torus_2d", [](S s, T, V v) { all_reduce_by_grid(s, 2, rings_along, v); }},
    {kAllReduce, "torus_3d", [](S s, T, V v) { all_reduce_by_grid(s, 3, rings_along, v); }},
    {kAllReduce, "mesh_2d", [](S s, T, V v) { all_reduce_by_grid(s, 2, lines_along, v); }},
    {kBroadcast, "chain", [](S s, T, V v) { chain(s, false, v); }},
    {kReduce, "chain", [](S s, T, V v) { chain(s, true, v); }},
    {kAllGather, "direct", [](S s, T, V v) { among_all(s, false, v); }},
    {kAllGather, "ring", [](S s, T, V v) { ring(s, v, false); }},
    {kReduceScatter, "direct", [](S s, T, V v) { among_all(s, true, v); }},
    {kReduceScatter, "tree", [](S s, T, V v) { among_all(s, true, v); }},
    {kReduceScatter, "ring", [](S s, T, V v) { ring(s, v, true); }},
    {kAllToAll, "direct", [](S s, T, V v) { among_all(s, false, v); }},
    {kAllToAll, "pairwise", pairwise},
};

}  // namespace

bool visit_pattern(const Algorithm& algorithm, const Shape& shape, const Topology& topology,
                   const Visit& visit) {
  for (const Pattern& pattern : kPatterns) {
    if (pattern.collective != algorithm.collective || pattern.algorithm != algorithm.name) continue;
    pattern.visit(shape, topology, visit);
    return true;
  }
  return false;
}

}  // namespace lockstep::schedule
