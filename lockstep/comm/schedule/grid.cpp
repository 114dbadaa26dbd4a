// The grid of a torus or mesh.
//
// A grid decides which messages cross between nodes. Reduce-scatter along an extent of n ranks
// leaves each 1/n of what it had, so the extents that come later, the slower ones, move less: they
// should be those that leave the node. Of all grids, the one with the least bytes over a
// node's port is taken, and of those that are alike the most even one, which has the fewest
// rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {
namespace {

// Every way to write `ranks` as a product of `extents` numbers.
void add_grids(int ranks, int extents, std::vector<int>& prefix,
               std::vector<std::vector<int>>& grids) {
  if (extents == 1) {
    prefix.push_back(ranks);
    grids.push_back(prefix);
    prefix.pop_back();
    return;
  }
  for (int extent = 1; extent <= ranks; ++extent) {
    if (ranks % extent != 0) continue;
    prefix.push_back(extent);
    add_grids(ranks / extent, extents - 1, prefix, grids);
    prefix.pop_back();
  }
}

// The vectors that cross the port of the node that sends the most, with rings along the extents.
double sent_by_busiest_machine(const std::vector<int>& grid, const std::vector<int>& machines) {
  std::map<int, double> sent;
  const int ranks = static_cast<int>(machines.size());
  int stride = 1;
  for (std::size_t axis = grid.size(); axis-- > 0;) {
    const int extent = grid[axis];
    // Reduce-scatter and all-gather send n-1 of n chunks of what is left of the vector.
    const double each = 2.0 * (extent - 1) / extent / stride;
    for (int rank = 0; rank < ranks; ++rank) {
      const int index = rank / stride % extent;
      const int next = rank + ((index + 1) % extent - index) * stride;
      const int machine = machines[static_cast<std::size_t>(rank)];
      if (machine != machines[static_cast<std::size_t>(next)]) sent[machine] += each;
    }
    stride *= extent;
  }
  double most = 0;
  for (const auto& [machine, vectors] : sent) most = std::max(most, vectors);
  return most;
}

std::vector<int> best_grid(int ranks, const std::vector<int>& machines, int extents) {
  std::vector<std::vector<int>> grids;
  std::vector<int> prefix;
  add_grids(ranks, extents, prefix, grids);
  const std::set<int> distinct(machines.begin(), machines.end());
  // Where all ranks are joined alike, every grid sends the same.
  const bool alike = distinct.size() < 2 || std::ssize(distinct) == ranks;
  struct Candidate {
    double sent;
    int rounds;
    std::vector<int> grid;
  };
  std::vector<Candidate> candidates;
  for (std::vector<int>& grid : grids) {
    const double sent = alike ? 0 : sent_by_busiest_machine(grid, machines);
    const int rounds = std::accumulate(grid.begin(), grid.end(), 0);
    candidates.push_back({sent, rounds, std::move(grid)});
  }
  return std::ranges::min(candidates,
                          [](const Candidate& a, const Candidate& b) {
                            constexpr double kSame = 1e-9;
                            if (std::abs(a.sent - b.sent) > kSame) return a.sent < b.sent;
                            return std::tie(a.rounds, a.grid) < std::tie(b.rounds, b.grid);
                          })
      .grid;
}

std::optional<std::string> refuses_grid(const Shape& shape, int extents) {
  if (shape.grid.empty()) return std::nullopt;
  const bool positive = std::ranges::all_of(shape.grid, [](int extent) { return extent > 0; });
  const long long product =
      std::accumulate(shape.grid.begin(), shape.grid.end(), 1LL, std::multiplies<>());
  if (std::ssize(shape.grid) == extents && positive && product == shape.ranks) {
    return std::nullopt;
  }
  return fmt::format("needs a grid of {} extents that multiply to {} ranks, like {}; {} does not",
                     extents, shape.ranks,
                     fmt::join(best_grid(shape.ranks, shape.machines, extents), "x"),
                     fmt::join(shape.grid, "x"));
}

}  // namespace

std::vector<int> grid_of(const Shape& shape, int extents) {
  return shape.grid.empty() ? best_grid(shape.ranks, shape.machines, extents) : shape.grid;
}

std::optional<std::string> refuses_grid_2d(const Shape& shape) { return refuses_grid(shape, 2); }
std::optional<std::string> refuses_grid_3d(const Shape& shape) { return refuses_grid(shape, 3); }

}  // namespace lockstep::schedule
