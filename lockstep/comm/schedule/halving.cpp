#include "lockstep/comm/schedule/halving.h"

namespace lockstep::schedule {
namespace {

// Ranks base, base + stride, ...
struct Set {
  int base;
  int stride;
  int count;
  int at(int i) const { return base + i * stride; }
};

}  // namespace

std::vector<Level> halving_levels(int ranks, int rank, Pairing pairing) {
  const bool near = pairing == Pairing::kNear;
  std::vector<Level> levels;
  Set set{0, 1, ranks};
  int index = rank;  // in set
  int place = 0;     // of the set's first part
  while (set.count > 1) {
    const int left_count = (set.count + 1) / 2;
    const int right_count = set.count / 2;
    const int stride = near ? 2 * set.stride : set.stride;
    const Set left{set.base, stride, left_count};
    const Set right{near ? set.at(1) : set.at(left_count), stride, right_count};
    const bool is_left = near ? index % 2 == 0 : index < left_count;
    const int i = near ? index / 2 : index % left_count;
    const Range left_parts{place, left_count};
    const Range right_parts{place + left_count, right_count};

    // The odd one out on the left turns to a rank on the right that serves two. These are chosen
    // such that no rank serves two at more than one level.
    const int odd = left_count > right_count ? left_count - 1 : -1;
    const int serves_two = near ? right_count - 1 : 0;
    Level level;
    level.keep = is_left ? left_parts : right_parts;
    level.give = is_left ? right_parts : left_parts;
    if (is_left && i == odd) {
      level.to = right.at(serves_two);
    } else {
      level.to = is_left ? right.at(i) : left.at(i);
      level.from = {level.to};
      if (!is_left && odd >= 0 && i == serves_two) level.from.push_back(left.at(odd));
    }
    levels.push_back(std::move(level));
    set = is_left ? left : right;
    index = i;
    place = levels.back().keep.first;
  }
  return levels;
}

TreeNode halving_tree(int ranks, int root, int rank) {
  TreeNode node;
  node.subtree = {0, ranks};
  Range run{0, ranks};
  for (int round = 0; run.count > 1; ++round) {
    const int half = (run.count + 1) / 2;
    const Range left{run.first, half};
    const Range right{run.first + half, run.count - half};
    const bool root_is_left = root < right.first;
    const Range here = root_is_left ? left : right;
    const Range there = root_is_left ? right : left;
    if (rank >= there.first && rank < there.end()) {
      if (rank == there.first) {
        node.parent = root;
        node.round = round;
        node.subtree = there;
      }
      root = there.first;
      run = there;
    } else {
      if (rank == root) node.children.push_back({there.first, round, there});
      run = here;
    }
  }
  return node;
}

}  // namespace lockstep::schedule
