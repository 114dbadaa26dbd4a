// Pair encoding itself: of all neighbours in a word the pair of lowest rank becomes one token, the
// leftmost first, until no pair is left that may.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizers/bpe_pair_map.h"

namespace lockstep::data {

struct Merge {
  std::uint32_t rank = 0;
  TokenId id = 0;  // what the pair becomes
};
using Merges = PairMap<Merge>;

// Working memory of merge_word().
struct MergeWorkspace {
  // A pair that may be merged: its rank, then the place of its left half, so that the smallest
  // comes next.
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t left;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<std::uint64_t> best;
  std::vector<std::uint32_t> next, previous;
  std::vector<Candidate> heap;
};

// Merges in place. Words of up to a few dozen tokens are searched from front to back each time;
// longer ones have a heap, so that the work grows as n log n.
void merge_word(const Merges& merges, std::vector<TokenId>& word, MergeWorkspace& workspace);

}  // namespace lockstep::data
