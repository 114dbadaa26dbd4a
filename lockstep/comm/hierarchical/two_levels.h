// Collectives in two levels: inside nodes, and across nodes in lanes (comm/node_grid.h).
//
// An all_reduce on two nodes of two ranks. Every rank has a vector of two parts:
//
//                node 0                node 1
//   rank         0         1           2         3
//   data         a b       c d         e f       g h
//   inside       a+c       b+d         e+g       f+h         reduce_scatter: a part for each place
//   across       a+c+e+g   b+d+f+h     a+c+e+g   b+d+f+h     all_reduce in the lanes 0 2 and 1 3
//   inside       both      both        both      both        all_gather
//
// A reduce_scatter sums the blocks of every node inside this one, then reduce-scatters the sums in
// the lane. An all_gather is the reverse: first in the lane, then the blocks of every node inside
// this one. So between two nodes goes every sum, and every block, once.
//
// Data that others read has to lie in symmetric memory. What does not goes through *staging*
// memory, in pieces. So do the sums and blocks of a lane. A call is *direct* where all ranks have
// its data in symmetric memory.
#pragma once

#include <cstddef>

#include "lockstep/comm/hierarchical/levels.h"
#include "lockstep/comm/node_grid.h"

namespace lockstep::hierarchical {

struct TwoLevelOptions {
  NodeGrid grid;
  std::size_t staging_bytes = 0;  // of Levels::staging, from its start
  bool tree_order = false;        // sums have the order of a balanced tree over all ranks
};

class TwoLevels {
 public:
  // `levels` outlives it.
  TwoLevels(const Levels& levels, int rank, const TwoLevelOptions& options);

  // Whether the call can be made in two levels, with the result that ReduceOp promises and in the
  // order that is asked for. The same at all ranks of a call.
  //   - mean, where dividing twice is exact: of floating-point numbers, on a power of two places
  //   - in the order of a tree: of 32 and 64 bits, on a power of two places; elements of 16 bits
  //     would be rounded between the levels
  bool serves(const Call& call) const;

  // How many times the call uses the levels.
  std::size_t rounds(const Call& call, bool is_direct) const;

  // Called by all ranks with the same `is_direct`, if it serves the call.
  void run(const Call& call, bool is_direct) const;

 private:
  void all_reduce(const Call& call, bool is_direct) const;
  void reduce(const Call& call) const;
  void reduce_scatter(const Call& call, bool is_direct) const;
  void all_gather(const Call& call) const;
  void all_gather_of_blocks(const Call& call) const;

  void all_reduce_parts(ConstData in, Data out, const ReduceOp& op) const;
  void copy(const std::byte* from, std::byte* to, std::size_t count, DType dtype) const;
  // Elements of each place's part, of a vector in staging memory.
  std::size_t most_of_part(std::size_t element) const;
  // Elements of each rank's block in a round: blocks of a lane are in staging memory, and `apart`
  // those of a node, too.
  std::size_t most_of_block(std::size_t element, bool apart) const;
  bool fits_a_lane(std::size_t count, std::size_t element) const;

  const Levels& levels_;
  const TwoLevelOptions options_;
  const std::size_t nodes_, places_;
  const int node_, place_;
  std::byte* const staging_;
};

}  // namespace lockstep::hierarchical
