// The merges of BPE: the neighbouring pair of the lowest rank becomes one token, the leftmost
// first, until no mergeable pair is left.
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

// The workspace of merge_word().
struct MergeWorkspace {
  // A mergeable pair: its rank, then the place of its left half. The smallest one is merged next.
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

// Merges in place. For words of up to a few dozen tokens every merge searches the whole word.
// Longer words use a heap, so the work grows as n log n.
void merge_word(const Merges& merges, std::vector<TokenId>& word, MergeWorkspace& workspace);

}  // namespace lockstep::data
