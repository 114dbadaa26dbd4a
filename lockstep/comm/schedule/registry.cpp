#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {
namespace {

int one(const Shape&) { return 1; }
int per_rank(const Shape& shape) { return shape.ranks; }
std::optional<std::string> never(const Shape&) { return std::nullopt; }

using enum Collective;
constexpr Algorithm kAllReduces[] = {
    {kAllReduce, "naive", "Every rank sends its whole vector to every other and sums by itself.",
     one, all_reduce_naive, never},
    {kAllReduce, "server",
     "All ranks send their vector to one, the server, which sums and sends the result back.", one,
     all_reduce_server, never},
    {kAllReduce, "ring",
     "Chunks travel around a ring and are added up on the way, then travel once more to reach "
     "everyone.",
     per_rank, all_reduce_ring, never},
    {kAllReduce, "bidirectional_ring",
     "Two rings of opposite directions, each working on one half of the vector.",
     bidirectional_ring_chunks, all_reduce_bidirectional_ring, never},
    {kAllReduce, "tree",
     "The vector is reduced to rank 0 along a binomial tree and broadcast back.", one,
     all_reduce_tree, never},
    {kAllReduce, "double_binary_tree",
     "Two binary trees, each for one half of the vector in segments; inner ranks of one are leaves "
     "of the other.",
     double_binary_tree_chunks, all_reduce_double_binary_tree, never},
    {kAllReduce, "halving_doubling_naive",
     "Half of the ranks at work send their whole vector to the other half until one is left; then "
     "back.",
     one, all_reduce_halving_doubling_naive, never},
    {kAllReduce, "butterfly",
     "In round k every rank swaps its whole vector with the rank 2^k away and adds.", one,
     all_reduce_butterfly, never},
    {kAllReduce, "rabenseifner",
     "Pairs swap halves of the vector, then quarters, and so on; then everything back by doubling.",
     per_rank, all_reduce_rabenseifner, never},
    {kAllReduce, "hierarchical",
     "Reduce inside each node to its first rank, all_reduce between those, broadcast inside.",
     hierarchical_chunks, all_reduce_hierarchical, never},
    {kAllReduce, "torus_2d",
     "Ranks on a grid: reduce-scatter along rows, all_reduce along columns, all-gather along rows.",
     per_rank, all_reduce_torus_2d, refuses_grid_2d},
    {kAllReduce, "mesh_2d",
     "Like torus_2d on a grid without wrap-around links: only neighbours of the grid talk.",
     per_rank, all_reduce_mesh_2d, refuses_grid_2d},
    {kAllReduce, "torus_3d", "Like torus_2d with three extents.", per_rank, all_reduce_torus_3d,
     refuses_grid_3d},
};

constexpr Algorithm kBroadcasts[] = {
    {kBroadcast, "flat", "The root sends the vector to every rank.", one, broadcast_flat, never},
    {kBroadcast, "binomial",
     "Everyone who has the vector sends it on, so the number of those who have it doubles.", one,
     broadcast_binomial, never},
    {kBroadcast, "chain",
     "Segments of the vector are passed from rank to rank, one behind the other.", chain_segments,
     broadcast_chain, never},
};

constexpr Algorithm kReduces[] = {
    {kReduce, "flat", "Every rank sends its vector to the root, which sums.", one, reduce_flat,
     never},
    {kReduce, "binomial", "Pairs of ranks sum, then pairs of their sums, until the root has all.",
     one, reduce_binomial, never},
    {kReduce, "chain",
     "Segments of the vector travel towards the root, every rank on the way adding its own.",
     chain_segments, reduce_chain, never},
};

constexpr Algorithm kGathers[] = {
    {kGather, "flat", "Every rank sends its block to the root.", one, gather_flat, never},
    {kGather, "binomial", "Blocks are collected along a binomial tree, ever longer runs of them.",
     one, gather_binomial, never},
};

constexpr Algorithm kScatters[] = {
    {kScatter, "flat", "The root sends every rank its block.", one, scatter_flat, never},
    {kScatter, "binomial",
     "The root sends half of the blocks to another rank, and both continue with their half.", one,
     scatter_binomial, never},
};

constexpr Algorithm kAllGathers[] = {
    {kAllGather, "direct", "Every rank sends its block to every other.", one, all_gather_direct,
     never},
    {kAllGather, "ring", "Blocks travel around a ring.", one, all_gather_ring, never},
    {kAllGather, "recursive", "Pairs swap what they have, so that it doubles in every round.", one,
     all_gather_recursive, never},
};

constexpr Algorithm kReduceScatters[] = {
    {kReduceScatter, "direct", "Every rank sends every other its block, and each sums its own.",
     one, reduce_scatter_direct, never},
    {kReduceScatter, "ring", "Blocks travel around a ring, every rank on the way adding its own.",
     one, reduce_scatter_ring, never},
    {kReduceScatter, "recursive",
     "Pairs swap the halves the other has to keep, so that what is left halves in every round.",
     one, reduce_scatter_recursive, never},
    {kReduceScatter, "tree",
     "Every rank sends every other its block, and each sums its own: neighbours first, then "
     "pairs.",
     one, reduce_scatter_tree, never},
};

constexpr Algorithm kAllToAlls[] = {
    {kAllToAll, "direct", "Every rank sends every other its chunk at once.", one, all_to_all_direct,
     never},
    {kAllToAll, "pairwise",
     "In round k every rank sends to the rank k+1 after it, so that everyone has one peer at a "
     "time.",
     one, all_to_all_pairwise, never},
};

}  // namespace

std::span<const Algorithm> algorithms(Collective collective) {
  switch (collective) {
    case kBroadcast:
      return kBroadcasts;
    case kScatter:
      return kScatters;
    case kGather:
      return kGathers;
    case kReduce:
      return kReduces;
    case kAllReduce:
    case kBarrier:
      return kAllReduces;
    case kAllGather:
      return kAllGathers;
    case kReduceScatter:
      return kReduceScatters;
    case kAllToAll:
      return kAllToAlls;
    case kSend:
    case kReceive:
    case kCopy:
      return {};
  }
  return {};
}

const Algorithm& find_algorithm(Collective collective, std::string_view wanted) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (algorithm.name == wanted) return algorithm;
    names.push_back(algorithm.name);
  }
  if (names.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} has no algorithms to choose from", name(collective));
  }
  fail(ErrorCode::kInvalidArgument, "{} has no algorithm '{}'{}; expected one of {}",
       name(collective), wanted, did_you_mean(wanted, names), fmt::join(names, ", "));
}

}  // namespace lockstep::schedule
