// The shapes that tests of schedules go through.
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "lockstep/comm/schedule/instance.h"

namespace lockstep::schedule {

inline constexpr int kMostRanks = 33;

inline std::string describe(const Algorithm& algorithm, const Shape& shape) {
  return fmt::format("{} by {}, {} ranks, root {}, segments {}, grid {}, machines {}",
                     name(algorithm.collective), algorithm.name, shape.ranks, shape.root,
                     shape.segments, fmt::join(shape.grid, "x"), fmt::join(shape.machines, ","));
}

// Nodes of the given sizes, ranks in order: {2, 1} is 0,0,1.
inline std::vector<int> machines_of_sizes(const std::vector<int>& sizes) {
  std::vector<int> machines;
  for (std::size_t m = 0; m < sizes.size(); ++m) {
    machines.insert(machines.end(), static_cast<std::size_t>(sizes[m]), static_cast<int>(m));
  }
  return machines;
}

// One node per rank, pairs, uneven runs, round-robin ranks with odd node numbers.
inline std::vector<std::vector<int>> layouts(int ranks) {
  std::vector<std::vector<int>> found(4);
  for (int r = 0; r < ranks; ++r) {
    found[0].push_back(r);
    found[1].push_back(r / 2);
    found[2].push_back(r < 1 ? 0 : r < 4 ? 1 : r < 9 ? 2 : 3);
    found[3].push_back(100 - r % 3);
  }
  return found;
}

// All shapes of interest for an algorithm and a number of ranks.
inline std::vector<Shape> shapes(const Algorithm& algorithm, int ranks) {
  Shape plain;
  plain.ranks = ranks;
  std::vector<Shape> found{plain};
  const auto name = algorithm.name;
  if (has_root(algorithm.collective) || name == "server") {
    for (int root : std::set<int>{1, ranks / 2, ranks - 1}) {
      if (root == 0 || root >= ranks) continue;
      found.push_back(plain);
      found.back().root = root;
    }
  }
  if (name == "chain" || name == "double_binary_tree") {
    for (int segments : {1, 3}) {
      found.push_back(plain);
      found.back().segments = segments;
      found.back().root = has_root(algorithm.collective) ? ranks / 3 : 0;
    }
  }
  if (name == "hierarchical") {
    for (auto& machines : layouts(ranks)) {
      found.push_back(plain);
      found.back().machines = machines;
    }
  }
  if (name == "torus_2d" || name == "mesh_2d") {
    for (int rows = 1; rows <= ranks; ++rows) {
      if (ranks % rows != 0) continue;
      found.push_back(plain);
      found.back().grid = {rows, ranks / rows};
    }
  }
  if (name == "torus_3d") {
    for (int a = 1; a <= ranks; ++a) {
      for (int b = 1; a * b <= ranks; ++b) {
        if (ranks % (a * b) != 0) continue;
        found.push_back(plain);
        found.back().grid = {a, b, ranks / a / b};
      }
    }
  }
  return found;
}

template <class Visit>
void for_every_schedule(Visit visit, int most_ranks = kMostRanks) {
  for (Collective collective : kScheduledCollectives) {
    for (const Algorithm& algorithm : algorithms(collective)) {
      for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        for (const Shape& shape : shapes(algorithm, ranks)) visit(algorithm, shape);
      }
    }
  }
}

}  // namespace lockstep::schedule
