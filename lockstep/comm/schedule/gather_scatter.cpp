// Gather and scatter: flat, and along the halving tree, where every subtree is a run of ranks and
// so its blocks are one message. Inner ranks keep the blocks of their subtree in scratch.
#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/halving.h"

namespace lockstep::schedule {

Program gather_flat(const Shape& shape, int rank) {
  const Range own{rank, 1};
  Writer writer;
  if (rank == shape.root) {
    writer.copy(0, input(own), output(own));
    for (int peer = 0; peer < shape.ranks; ++peer) {
      if (peer != rank) writer.receive(0, peer, output({peer, 1}));
    }
  } else {
    writer.send(0, shape.root, input(own));
  }
  return std::move(writer).finish(1);
}

Program scatter_flat(const Shape& shape, int rank) {
  const Range own{rank, 1};
  Writer writer;
  if (rank == shape.root) {
    for (int peer = 0; peer < shape.ranks; ++peer) {
      if (peer != rank) writer.send(0, peer, input({peer, 1}));
    }
    writer.copy(0, input(own), output(own));
  } else {
    writer.receive(0, shape.root, output(own));
  }
  return std::move(writer).finish(1);
}

Program gather_binomial(const Shape& shape, int rank) {
  const TreeNode node = halving_tree(shape.ranks, shape.root, rank);
  const int last = ceil_log2(shape.ranks) - 1;
  const Range own{rank, 1};
  const bool is_root = rank == shape.root;
  Writer writer;
  if (!is_root && node.children.empty()) {
    writer.send(last - node.round, node.parent, input(own));
    return std::move(writer).finish(last + 1);
  }
  const Range slots = is_root ? node.subtree : writer.add_scratch(node.subtree);
  const auto place = [&](Range blocks) {
    const Range at{slots.first + blocks.first - node.subtree.first, blocks.count};
    return is_root ? output(at) : scratch(at);
  };
  writer.copy(0, input(own), place(own));
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
    writer.receive(last - child->round, child->rank, place(child->subtree));
  }
  if (!is_root) writer.send(last - node.round, node.parent, place(node.subtree));
  return std::move(writer).finish(last + 1);
}

Program scatter_binomial(const Shape& shape, int rank) {
  const TreeNode node = halving_tree(shape.ranks, shape.root, rank);
  const Range own{rank, 1};
  const bool is_root = rank == shape.root;
  Writer writer;
  if (!is_root && node.children.empty()) {
    writer.receive(node.round, node.parent, output(own));
    return std::move(writer).finish(ceil_log2(shape.ranks));
  }
  const Range slots = is_root ? node.subtree : writer.add_scratch(node.subtree);
  const auto place = [&](Range blocks) {
    const Range at{slots.first + blocks.first - node.subtree.first, blocks.count};
    return is_root ? input(at) : scratch(at);
  };
  if (!is_root) writer.receive(node.round, node.parent, place(node.subtree));
  for (const TreeChild& child : node.children) {
    writer.send(child.round, child.rank, place(child.subtree));
  }
  writer.copy(is_root ? 0 : node.round, place(own), output(own));
  return std::move(writer).finish(ceil_log2(shape.ranks));
}

}  // namespace lockstep::schedule
