// A set of ranks, for the contributions in a value.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::schedule {

class RankSet {
 public:
  RankSet() = default;
  RankSet(int ranks, int rank);
  static RankSet all(int ranks);

  bool empty() const { return words_.empty(); }
  bool has(int rank) const;
  int count() const;
  bool meets(const RankSet& other) const;
  void merge(const RankSet& other);
  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace lockstep::schedule
