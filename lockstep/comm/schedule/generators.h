// All generators of schedules. Callers use find_algorithm(). A generator is a pure function of
// (shape, rank).
//
// No generated program writes in a round what it sends in that round, not even in place, so sends
// may read the caller's memory during receives.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/schedule/build.h"

namespace lockstep::schedule {

Program all_reduce_naive(const Shape& shape, int rank);
Program all_reduce_server(const Shape& shape, int rank);
Program all_reduce_ring(const Shape& shape, int rank);
Program all_reduce_bidirectional_ring(const Shape& shape, int rank);
Program all_reduce_tree(const Shape& shape, int rank);
Program all_reduce_double_binary_tree(const Shape& shape, int rank);
Program all_reduce_halving_doubling_naive(const Shape& shape, int rank);
Program all_reduce_butterfly(const Shape& shape, int rank);
Program all_reduce_rabenseifner(const Shape& shape, int rank);
Program all_reduce_hierarchical(const Shape& shape, int rank);
Program all_reduce_torus_2d(const Shape& shape, int rank);
Program all_reduce_mesh_2d(const Shape& shape, int rank);
Program all_reduce_torus_3d(const Shape& shape, int rank);

Program broadcast_flat(const Shape& shape, int rank);
Program broadcast_binomial(const Shape& shape, int rank);
Program broadcast_chain(const Shape& shape, int rank);
Program reduce_flat(const Shape& shape, int rank);
Program reduce_binomial(const Shape& shape, int rank);
Program reduce_chain(const Shape& shape, int rank);
Program gather_flat(const Shape& shape, int rank);
Program gather_binomial(const Shape& shape, int rank);
Program scatter_flat(const Shape& shape, int rank);
Program scatter_binomial(const Shape& shape, int rank);

Program all_gather_direct(const Shape& shape, int rank);
Program all_gather_ring(const Shape& shape, int rank);
Program all_gather_recursive(const Shape& shape, int rank);
Program reduce_scatter_direct(const Shape& shape, int rank);
Program reduce_scatter_ring(const Shape& shape, int rank);
Program reduce_scatter_recursive(const Shape& shape, int rank);
Program reduce_scatter_tree(const Shape& shape, int rank);
Program all_to_all_direct(const Shape& shape, int rank);
Program all_to_all_pairwise(const Shape& shape, int rank);

// Chunks of the vector, for generators that do not use 1 or N.
int bidirectional_ring_chunks(const Shape& shape);
int double_binary_tree_chunks(const Shape& shape);
int hierarchical_chunks(const Shape& shape);
int chain_segments(const Shape& shape);

std::optional<std::string> refuses_grid_2d(const Shape& shape);
std::optional<std::string> refuses_grid_3d(const Shape& shape);

// Properties of shapes for closed forms.
std::vector<int> grid_of(const Shape& shape, int extents);  // the given grid or the best one
int double_binary_tree_height(int ranks);                   // edges from a root to the deepest leaf
struct Machines {
  std::vector<int> leaders;  // the first rank of each
  int largest = 0;           // ranks on the largest node
};
Machines machines_of(const Shape& shape);

}  // namespace lockstep::schedule
