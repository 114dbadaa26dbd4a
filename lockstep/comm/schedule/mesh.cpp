// Grids of ranks: torus (rings along every extent) and mesh (lines, no wrap-around links).
//
// Reduce-scatter along the fastest extent, then along the next on what is left of the vector, and
// so on; then all-gather back. On a grid of 2 rows and 3 columns, 6 chunks:
//   rows      each rank has 2 of 6 chunks, combined over its row of 3
//   columns   each rank has 1 of 6 chunks, combined over all
#include <functional>
#include <numeric>

#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/phases.h"

namespace lockstep::schedule {
namespace {

// The ranks that differ from `rank` only along extent `axis`.
Group line_along(const std::vector<int>& grid, std::size_t axis, int rank) {
  const int stride = std::accumulate(grid.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
                                     grid.end(), 1, std::multiplies<>());
  Group line;
  line.index = rank / stride % grid[axis];
  for (int i = 0; i < grid[axis]; ++i) {
    line.ranks.push_back(rank + (i - line.index) * stride);
  }
  return line;
}

Program all_reduce_on_grid(const Shape& shape, int rank, int extents, Phase reduce_scatter,
                           Phase all_gather) {
  const std::vector<int> grid = grid_of(shape, extents);
  Accumulator vector(shape.ranks);
  std::vector<Range> ranges{{0, shape.ranks}};
  int round = 0;
  for (std::size_t axis = grid.size(); axis-- > 0;) {
    const Group line = line_along(grid, axis, rank);
    round = reduce_scatter(vector, round, line, ranges.back());
    ranges.push_back(part(ranges.back(), line.size(), line.index));
  }
  for (std::size_t axis = 0; axis < grid.size(); ++axis) {
    ranges.pop_back();
    round = all_gather(vector, round, line_along(grid, axis, rank), ranges.back());
  }
  return std::move(vector).finish(round);
}

}  // namespace

// Chunk j travels to index j from both ends at once. Towards the right, the end sends the chunk
// with the longest way first; index i receives chunk j in round (n-1-j) + (i-1), adds its own and
// sends it on in the next. Towards the left it is the mirror image.
int line_reduce_scatter(Accumulator& vector, int round, const Group& line, Range range) {
  const int n = line.size();
  const int i = line.index;
  for (int t = 0; t < n - 1; ++t) {
    const int right = n - 1 - t + i;  // the chunk sent to the right
    const int left = t - (n - 1 - i);
    if (i < n - 1 && right <= n - 1) vector.send(round + t, line.at(i + 1), part(range, n, right));
    if (i > 0 && left >= 0) vector.send(round + t, line.at(i - 1), part(range, n, left));
    if (i > 0 && right - 1 <= n - 1) {
      vector.reduce(round + t, line.at(i - 1), part(range, n, right - 1));
    }
    if (i < n - 1 && left + 1 >= 0) {
      vector.reduce(round + t, line.at(i + 1), part(range, n, left + 1));
    }
  }
  return round + n - 1;
}

int line_all_gather(Accumulator& vector, int round, const Group& line, Range range) {
  const int n = line.size();
  const int i = line.index;
  for (int t = 0; t < n - 1; ++t) {
    const int from_left = i - 1 - t;  // the chunks that come
    const int from_right = i + 1 + t;
    if (i < n - 1 && from_left + 1 >= 0) {
      vector.send(round + t, line.at(i + 1), part(range, n, from_left + 1));
    }
    if (i > 0 && from_right - 1 <= n - 1) {
      vector.send(round + t, line.at(i - 1), part(range, n, from_right - 1));
    }
    if (from_left >= 0) vector.receive(round + t, line.at(i - 1), part(range, n, from_left));
    if (from_right <= n - 1) vector.receive(round + t, line.at(i + 1), part(range, n, from_right));
  }
  return round + n - 1;
}

Program all_reduce_torus_2d(const Shape& shape, int rank) {
  return all_reduce_on_grid(shape, rank, 2, ring_reduce_scatter, ring_all_gather);
}
Program all_reduce_torus_3d(const Shape& shape, int rank) {
  return all_reduce_on_grid(shape, rank, 3, ring_reduce_scatter, ring_all_gather);
}
Program all_reduce_mesh_2d(const Shape& shape, int rank) {
  return all_reduce_on_grid(shape, rank, 2, line_reduce_scatter, line_all_gather);
}

}  // namespace lockstep::schedule
