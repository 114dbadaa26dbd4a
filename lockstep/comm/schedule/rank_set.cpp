#include "lockstep/comm/schedule/rank_set.h"

#include <algorithm>
#include <bit>

namespace lockstep::schedule {
namespace {

constexpr int kWordBits = 64;

std::size_t words_for(int ranks) { return static_cast<std::size_t>(ranks - 1) / kWordBits + 1; }

}  // namespace

RankSet::RankSet(int ranks, int rank) : words_(words_for(ranks)) {
  words_[static_cast<std::size_t>(rank / kWordBits)] = std::uint64_t{1} << (rank % kWordBits);
}

RankSet RankSet::all(int ranks) {
  RankSet set;
  set.words_.assign(words_for(ranks), ~std::uint64_t{0});
  if (const int rest = ranks % kWordBits; rest != 0) {
    set.words_.back() = (std::uint64_t{1} << rest) - 1;
  }
  return set;
}

bool RankSet::has(int rank) const {
  const auto word = static_cast<std::size_t>(rank / kWordBits);
  return word < words_.size() && (words_[word] >> (rank % kWordBits) & 1) != 0;
}

int RankSet::count() const {
  int total = 0;
  for (std::uint64_t word : words_) total += std::popcount(word);
  return total;
}

bool RankSet::meets(const RankSet& other) const {
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) {
    if ((words_[i] & other.words_[i]) != 0) return true;
  }
  return false;
}

void RankSet::merge(const RankSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()));
  for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
}

}  // namespace lockstep::schedule
