// Two binary trees, each reducing and broadcasting one half of the vector, segment after segment.
//
// In a single binary tree the leaves, half of all ranks, send little and pass nothing on. Here a
// rank that has children in one tree is a leaf in the other, so that all links are busy.
//
// Trees are made of *labels*: label x with lowest bit b stands between x-b/2 and x+b/2, so odd
// labels are leaves. For 7 ranks:
//          4                An odd number of ranks has labels 1..N in both trees, the second one
//        /   \              moved by a place; for an even number label 0 stands above the root and
//       2     6             the second tree is the mirror image of the first.
//      / \   / \            (N=7)  rank 0..6, first tree 1 2 3 4 5 6 7, second 2 3 4 5 6 7 1
//     1   3 5   7           (N=8)  rank 0..7, first tree 0 1 2 .. 7,    second 7 6 5 .. 0
#include <bit>
#include <vector>

#include "lockstep/comm/schedule/generators.h"

namespace lockstep::schedule {
namespace {

constexpr int kSegmentsOfAHalf = 8;

struct Labels {
  int ranks;
  bool mirrored;  // the second tree

  bool odd() const { return ranks % 2 == 1; }
  int largest() const { return odd() ? ranks : ranks - 1; }
  int of_rank(int rank) const {
    if (!mirrored) return odd() ? rank + 1 : rank;
    return odd() ? (rank + 1) % ranks + 1 : ranks - 1 - rank;
  }
  int rank_of(int label) const {
    if (!mirrored) return odd() ? label - 1 : label;
    return odd() ? (label - 2 + ranks) % ranks : ranks - 1 - label;
  }
};

int lowest_bit(int x) { return x & -x; }

// 0 above the top label.
int parent(int label, int largest) {
  const int bit = lowest_bit(label);
  const int up = (label ^ bit) | (bit << 1);
  return up <= largest ? up : label ^ bit;
}

std::vector<int> children(int label, int largest) {
  if (label == 0) return {static_cast<int>(std::bit_floor(static_cast<unsigned>(largest)))};
  const int bit = lowest_bit(label);
  if (bit == 1) return {};
  std::vector<int> found{label - bit / 2};
  for (int half = bit / 2; half > 0; half /= 2) {
    if (label + half <= largest) {
      found.push_back(label + half);
      break;
    }
  }
  return found;
}

struct Place {
  int parent = -1;
  int depth = 0;
  std::vector<int> children;
};

Place place_in_tree(const Labels& labels, int rank) {
  const int label = labels.of_rank(rank);
  const int largest = labels.largest();
  const auto is_root = [&](int l) { return l == 0 || (labels.odd() && parent(l, largest) == 0); };
  Place place;
  for (int l = label; !is_root(l); l = parent(l, largest)) ++place.depth;
  if (!is_root(label)) place.parent = labels.rank_of(parent(label, largest));
  for (int child : children(label, largest)) place.children.push_back(labels.rank_of(child));
  return place;
}

int segments_of(const Shape& shape) {
  return shape.segments > 0 ? shape.segments : kSegmentsOfAHalf;
}

}  // namespace

int double_binary_tree_height(int ranks) {
  const int largest = Labels{ranks, false}.largest();
  return floor_log2(largest) + (ranks % 2 == 0 ? 1 : 0);
}

int double_binary_tree_chunks(const Shape& shape) { return 2 * segments_of(shape); }

Program all_reduce_double_binary_tree(const Shape& shape, int rank) {
  const int segments = segments_of(shape);
  Accumulator vector(2 * segments);
  if (shape.ranks == 1) return std::move(vector).finish(1);
  const int height = double_binary_tree_height(shape.ranks);
  const int down = height + segments - 1;  // the first round of the broadcast
  for (bool second : {false, true}) {
    const Place place = place_in_tree({shape.ranks, second}, rank);
    const auto chunk = [&](int segment) { return Range{second ? segments + segment : segment, 1}; };
    for (int segment = 0; segment < segments; ++segment) {
      const int round = height - place.depth + segment;
      for (int child : place.children) vector.reduce(round - 1, child, chunk(segment));
      if (place.parent >= 0) vector.send(round, place.parent, chunk(segment));
    }
    for (int segment = 0; segment < segments; ++segment) {
      const int round = down + place.depth + segment;
      if (place.parent >= 0) vector.receive(round - 1, place.parent, chunk(segment));
      for (int child : place.children) vector.send(round, child, chunk(segment));
    }
  }
  return std::move(vector).finish(2 * down);
}

}  // namespace lockstep::schedule
