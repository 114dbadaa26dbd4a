// All-gather: every rank ends with all ranks' blocks. A block is one chunk.
#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/halving.h"

namespace lockstep::schedule {

Program all_gather_direct(const Shape& shape, int rank) {
  const Range own{rank, 1};
  Writer writer;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer != rank) writer.send(0, peer, input(own));
  }
  writer.copy(0, input(own), output(own));
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer != rank) writer.receive(0, peer, output({peer, 1}));
  }
  return std::move(writer).finish(1);
}

Program all_gather_ring(const Shape& shape, int rank) {
  const int n = shape.ranks;
  const Range all{0, n};
  const Group ring = all_ranks(shape, rank);
  Writer writer;
  writer.copy(0, input({rank, 1}), output({rank, 1}));
  for (int k = 0; k < n - 1; ++k) {
    const Range sent = part(all, n, rank - k);
    writer.send(k, ring.next(), k == 0 ? input(sent) : output(sent));
    writer.receive(k, ring.previous(), output(part(all, n, rank - 1 - k)));
  }
  return std::move(writer).finish(n - 1);
}

// Recursive doubling: from the smallest halves up, the two halves of a run of ranks swap all they
// have, which is a run of blocks.
Program all_gather_recursive(const Shape& shape, int rank) {
  const std::vector<Level> levels = halving_levels(shape.ranks, rank, Pairing::kFar);
  const int rounds = ceil_log2(shape.ranks);
  Writer writer;
  writer.copy(0, input({rank, 1}), output({rank, 1}));
  for (int k = static_cast<int>(levels.size()) - 1; k >= 0; --k) {
    const Level& level = levels[static_cast<std::size_t>(k)];
    const int round = rounds - 1 - k;
    const Region held = level.keep.count == 1 ? input(level.keep) : output(level.keep);
    for (int peer : level.from) writer.send(round, peer, held);
    writer.receive(round, level.to, output(level.give));
  }
  return std::move(writer).finish(rounds);
}

}  // namespace lockstep::schedule
