// Trees that move the whole vector in every message: reduce to rank 0, then broadcast from it.
//
//   tree, 8 ranks, reducing:               halving-doubling, 8 ranks, reducing:
//   round 0   0<1  2<3  4<5  6<7           round 0   0<4  1<5  2<6  3<7
//   round 1   0<2  4<6                     round 1   0<2  1<3
//   round 2   0<4                          round 2   0<1
#include <algorithm>

#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/halving.h"
#include "lockstep/comm/schedule/phases.h"

namespace lockstep::schedule {

int tree_reduce(Accumulator& vector, int round, const Group& group, Range range) {
  const TreeNode node = halving_tree(group.size(), 0, group.index);
  const int last = round + ceil_log2(group.size()) - 1;
  // What a broadcast does in round k, a reduction undoes in the k-th round from the end.
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
    vector.reduce(last - child->round, group.at(child->rank), range);
  }
  if (node.parent >= 0) vector.send(last - node.round, group.at(node.parent), range);
  return last + 1;
}

int tree_broadcast(Accumulator& vector, int round, const Group& group, Range range) {
  const TreeNode node = halving_tree(group.size(), 0, group.index);
  if (node.parent >= 0) vector.receive(round + node.round, group.at(node.parent), range);
  for (const TreeChild& child : node.children) {
    vector.send(round + child.round, group.at(child.rank), range);
  }
  return round + ceil_log2(group.size());
}

Program all_reduce_tree(const Shape& shape, int rank) {
  const Range all{0, 1};
  Accumulator vector(1);
  const Group group = all_ranks(shape, rank);
  int round = tree_reduce(vector, 0, group, all);
  round = tree_broadcast(vector, round, group, all);
  return std::move(vector).finish(round);
}

// The ranks still at work halve: the upper half sends its vector to the lower half. Then they
// double again, the lower half giving the result back.
Program all_reduce_halving_doubling_naive(const Shape& shape, int rank) {
  const Range all{0, 1};
  Accumulator vector(1);
  std::vector<int> lower_halves;
  for (int active = shape.ranks; active > 1; active = lower_halves.back()) {
    lower_halves.push_back((active + 1) / 2);
  }
  const int levels = static_cast<int>(lower_halves.size());
  const auto peer_at = [&](int level) {
    const int half = lower_halves[static_cast<std::size_t>(level)];
    const int active = level == 0 ? shape.ranks : lower_halves[static_cast<std::size_t>(level) - 1];
    if (rank >= active) return -1;
    const int peer = rank < half ? rank + half : rank - half;
    return peer < active ? peer : -1;
  };
  for (int level = 0; level < levels; ++level) {
    const int peer = peer_at(level);
    if (peer > rank) vector.reduce(level, peer, all);
    if (peer >= 0 && peer < rank) vector.send(level, peer, all);
  }
  for (int level = levels - 1; level >= 0; --level) {
    const int round = 2 * levels - 1 - level;
    const int peer = peer_at(level);
    if (peer > rank) vector.send(round, peer, all);
    if (peer >= 0 && peer < rank) vector.receive(round, peer, all);
  }
  return std::move(vector).finish(2 * levels);
}

}  // namespace lockstep::schedule
