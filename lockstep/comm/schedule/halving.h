// Halving: how recursive algorithms split any number of ranks, powers of two or not.
//
// A set of ranks is split into a left and a right half again and again until every set has one
// rank; the left half of an odd set has one rank more. At each *level*, every rank has a peer in
// the other half. With 5 ranks, far: {0 1 2 | 3 4}, then {0 1 | 2}, {3 | 4}, then {0 | 1}.
#pragma once

#include <vector>

#include "lockstep/comm/schedule/build.h"

namespace lockstep::schedule {

// Which ranks are paired at the first level, where messages are longest: far ones, half of all
// ranks apart (halves are consecutive ranks), or neighbours (halves are even and odd ranks).
enum class Pairing { kFar, kNear };

// One level as one rank sees it. Parts are numbered by place: the order in which the ranks stand
// when all halves have been made (for far pairing, place = rank).
struct Level {
  Range keep;             // the parts of the half this rank is in
  Range give;             // the parts of the other half
  int to = -1;            // where `give` goes in a reduce-scatter, and comes from in an all-gather
  std::vector<int> from;  // who sends `keep` in a reduce-scatter, and gets it in an all-gather: one
                          // rank; none or two where the halves are unequal
};

// The levels of `rank` of `ranks`, from the whole set down to itself.
std::vector<Level> halving_levels(int ranks, int rank, Pairing pairing);

// A tree made by halving runs of ranks; a binomial tree where there are powers of two. In round k
// of a broadcast, the root of a run sends to the first rank of the half it is not in, which becomes
// the root there. So every subtree is a run of ranks, whatever the root is.
struct TreeChild {
  int rank = 0;
  int round = 0;
  Range subtree;  // of ranks
};
struct TreeNode {
  int parent = -1;                  // -1: this is the root
  int round = -1;                   // in which the parent sends
  Range subtree;                    // of ranks, this one included
  std::vector<TreeChild> children;  // by round
};
TreeNode halving_tree(int ranks, int root, int rank);

}  // namespace lockstep::schedule
