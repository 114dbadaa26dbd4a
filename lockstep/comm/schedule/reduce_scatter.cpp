// Reduce-scatter: rank r ends with block r combined over all ranks. A block is one chunk. Sums of
// other ranks' blocks accumulate in scratch, because output holds only one block.
#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/halving.h"

namespace lockstep::schedule {

Program reduce_scatter_direct(const Shape& shape, int rank) {
  Writer writer;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer != rank) writer.send(0, peer, input({peer, 1}));
  }
  fold_into_output(writer, 0, shape, rank, {rank, 1});
  return std::move(writer).finish(1);
}

Program reduce_scatter_ring(const Shape& shape, int rank) {
  const int n = shape.ranks;
  const Range all{0, n};
  const Group ring = all_ranks(shape, rank);
  Writer writer;
  if (n == 1) writer.copy(0, input(all), output(all));
  // Blocks have equal sizes, so two slots serve all of them in turn: one is sent, one is filled.
  Region slots[2];
  for (int i = 0; i < 2 && n > 2; ++i) slots[i] = scratch(writer.add_scratch({rank, 1}));
  Region held = input(part(all, n, rank - 1));
  for (int k = 0; k < n - 1; ++k) {
    writer.send(k, ring.next(), held);
    const Range block = part(all, n, rank - 2 - k);
    const Region sum = block.first == rank ? output(block) : slots[k % 2];
    writer.receive_reduce(k, ring.previous(), input(block), sum);
    held = sum;
  }
  return std::move(writer).finish(n - 1);
}

// Recursive halving: from the whole run of ranks down, each half gives the other what that has to
// keep.
Program reduce_scatter_recursive(const Shape& shape, int rank) {
  const std::vector<Level> levels = halving_levels(shape.ranks, rank, Pairing::kFar);
  Writer writer;
  if (levels.empty()) writer.copy(0, input({rank, 1}), output({rank, 1}));
  const bool needs_scratch = !levels.empty() && levels.front().keep.count > 1;
  const Range kept = needs_scratch ? levels.front().keep : Range{};
  const Range slots = writer.add_scratch(kept);
  const auto in_scratch = [&](Range blocks) {
    return scratch({slots.first + blocks.first - kept.first, blocks.count});
  };
  bool in_input = true;  // this rank's sums are still its input
  const auto held = [&](Range blocks) { return in_input ? input(blocks) : in_scratch(blocks); };
  int round = 0;
  for (const Level& level : levels) {
    writer.send(round, level.to, held(level.give));
    const bool last = level.keep.count == 1;
    const Region sum = last ? output(level.keep) : in_scratch(level.keep);
    Region operand = held(level.keep);
    for (int peer : level.from) {
      writer.receive_reduce(round, peer, operand, sum);
      operand = sum;
    }
    if (!level.from.empty()) in_input = false;
    ++round;
  }
  return std::move(writer).finish(ceil_log2(shape.ranks));
}

namespace {

// Sums the contributions to this rank's block by a binary tree over ranks, with one slot per level.
class TreeFold {
 public:
  TreeFold(Writer& writer, int rank) : writer_(writer), rank_(rank) {}

  // Where the sum over these ranks is; of this rank alone that is its input.
  Region sum(Range ranks) {
    if (ranks.count == 1) return ranks.first == rank_ ? own() : received(ranks.first);
    const int left = 1 << (ceil_log2(ranks.count) - 1);
    const Region a = sum({ranks.first, left});
    const Range right{ranks.first + left, ranks.count - left};
    const bool is_message = right.count == 1 && right.first != rank_;
    if (is_message) {
      const Region target = a.space == Space::kScratch ? a : slot();
      writer_.receive_reduce(0, right.first, a, target);
      return target;
    }
    const Region b = sum(right);
    const bool into_a = a.space == Space::kScratch;
    writer_.reduce(0, into_a ? b : a, into_a ? a : b);
    if (into_a && b.space == Space::kScratch) free_.push_back(b);
    return into_a ? a : b;
  }

 private:
  Region own() const { return input({rank_, 1}); }
  Region received(int peer) {
    const Region target = slot();
    writer_.receive(0, peer, target);
    return target;
  }
  Region slot() {
    if (free_.empty()) return scratch(writer_.add_scratch({rank_, 1}));
    const Region region = free_.back();
    free_.pop_back();
    return region;
  }

  Writer& writer_;
  int rank_;
  std::vector<Region> free_;
};

}  // namespace

// As direct, but sums neighbours first, then pairs, then fours.
Program reduce_scatter_tree(const Shape& shape, int rank) {
  Writer writer;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    if (peer != rank) writer.send(0, peer, input({peer, 1}));
  }
  writer.copy(0, TreeFold(writer, rank).sum({0, shape.ranks}), output({rank, 1}));
  return std::move(writer).finish(1);
}

}  // namespace lockstep::schedule
