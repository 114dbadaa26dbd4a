// Broadcast, and reduce as its mirror image: flat, along a tree, and down a pipelined chain.
//
//   chain, root 0, 3 segments        round   0     1     2     3
//   0 -> 1 -> 2                      0 -> 1  s0    s1    s2
//                                    1 -> 2        s0    s1    s2
#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/halving.h"

namespace lockstep::schedule {
namespace {

constexpr int kChainSegments = 8;
constexpr Range kWhole{0, 1};

// Ranks counted from the root along the chain, around the end.
struct ChainPlace {
  int position;
  int towards_root;
  int away;
};
ChainPlace chain_place(const Shape& shape, int rank) {
  const int n = shape.ranks;
  return {(rank - shape.root + n) % n, (rank + n - 1) % n, (rank + 1) % n};
}

int rounds_of_chain(const Shape& shape) {
  return shape.ranks > 1 ? shape.ranks - 2 + chain_segments(shape) : 1;
}

}  // namespace

int chain_segments(const Shape& shape) {
  return shape.segments > 0 ? shape.segments : kChainSegments;
}

Program broadcast_flat(const Shape& shape, int rank) {
  Writer writer;
  if (rank == shape.root) {
    for (int peer = 0; peer < shape.ranks; ++peer) {
      if (peer != rank) writer.send(0, peer, input(kWhole));
    }
    writer.copy(0, input(kWhole), output(kWhole));
  } else {
    writer.receive(0, shape.root, output(kWhole));
  }
  return std::move(writer).finish(1);
}

Program broadcast_binomial(const Shape& shape, int rank) {
  Writer writer;
  const TreeNode node = halving_tree(shape.ranks, shape.root, rank);
  if (node.parent >= 0) writer.receive(node.round, node.parent, output(kWhole));
  const Region source = rank == shape.root ? input(kWhole) : output(kWhole);
  for (const TreeChild& child : node.children) writer.send(child.round, child.rank, source);
  if (rank == shape.root) writer.copy(0, input(kWhole), output(kWhole));
  return std::move(writer).finish(ceil_log2(shape.ranks));
}

Program broadcast_chain(const Shape& shape, int rank) {
  const int segments = chain_segments(shape);
  const ChainPlace place = chain_place(shape, rank);
  Writer writer;
  for (int s = 0; s < segments; ++s) {
    const Range segment{s, 1};
    if (place.position < shape.ranks - 1) {
      const Region source = rank == shape.root ? input(segment) : output(segment);
      writer.send(place.position + s, place.away, source);
    }
    if (place.position > 0) {
      writer.receive(place.position - 1 + s, place.towards_root, output(segment));
    }
  }
  if (rank == shape.root) writer.copy(0, input({0, segments}), output({0, segments}));
  return std::move(writer).finish(rounds_of_chain(shape));
}

Program reduce_flat(const Shape& shape, int rank) {
  Writer writer;
  if (rank == shape.root) {
    fold_into_output(writer, 0, shape, rank, kWhole);
  } else {
    writer.send(0, shape.root, input(kWhole));
  }
  return std::move(writer).finish(1);
}

Program reduce_binomial(const Shape& shape, int rank) {
  Writer writer;
  const TreeNode node = halving_tree(shape.ranks, shape.root, rank);
  const int last = ceil_log2(shape.ranks) - 1;
  Region value = input(kWhole);
  if (!node.children.empty()) {
    const Region sum = rank == shape.root ? output(kWhole) : scratch(writer.add_scratch(kWhole));
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      writer.receive_reduce(last - child->round, child->rank, value, sum);
      value = sum;
    }
  } else if (rank == shape.root) {
    writer.copy(0, input(kWhole), output(kWhole));
  }
  if (node.parent >= 0) writer.send(last - node.round, node.parent, value);
  return std::move(writer).finish(last + 1);
}

Program reduce_chain(const Shape& shape, int rank) {
  const int segments = chain_segments(shape);
  const ChainPlace place = chain_place(shape, rank);
  const bool is_root = rank == shape.root;
  const bool is_tail = place.position == shape.ranks - 1;
  const int behind = shape.ranks - 1 - place.position;  // ranks whose sum comes to this one
  Writer writer;
  if (is_root && is_tail) writer.copy(0, input({0, segments}), output({0, segments}));
  const Range slots = is_root || is_tail ? Range{} : writer.add_scratch({0, segments});
  for (int s = 0; s < segments; ++s) {
    const Region own = input({s, 1});
    Region sum = own;
    if (!is_tail) {
      sum = is_root ? output({s, 1}) : scratch({slots.first + s, 1});
      writer.receive_reduce(behind - 1 + s, place.away, own, sum);
    }
    if (!is_root) writer.send(behind + s, place.towards_root, sum);
  }
  return std::move(writer).finish(rounds_of_chain(shape));
}

}  // namespace lockstep::schedule
