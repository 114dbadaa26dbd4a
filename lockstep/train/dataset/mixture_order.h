// Which file of a mixture each sequence of a run comes from.
//
// Sequences are numbered through the run. In every *block* of kMixtureBlock of them each file has
// the same number, its *quota*, and the order of a block is random:
//
//   block           0              1
//   sequence        0 1 2 3 4 5    6 7 8 9 ...
//   file            a b a a a b    b a a b ...        quotas: a 4, b 2
//   number in file  0 0 1 2 3 1    2 4 5 3 ...
//
// There is no state: file and number are a function of quotas, seed and the sequence's number, so a
// resumed run, and any number of ranks, read the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::train {

inline constexpr std::uint64_t kMixtureBlock = 4096;

// The quotas of files with these weights: as near to them as whole numbers are, and one at least.
// Throws Error(kInvalidArgument) for weights that are not over 0 and finite, or too many.
std::vector<std::uint64_t> mixture_quotas(std::span<const double> weights);

class MixtureOrder {
 public:
  MixtureOrder(std::vector<std::uint64_t> quotas, std::uint64_t seed);

  struct Place {
    std::size_t file = 0;
    std::uint64_t number = 0;  // among all sequences of that file
  };
  Place place(std::uint64_t sequence);

 private:
  void make_block(std::uint64_t block);

  std::vector<std::uint64_t> quotas_;
  std::uint64_t seed_;
  std::uint64_t block_;        // whose places are there
  std::vector<Place> places_;  // of a block
};

// The order of validation sequences, of which file i has `counts[i]`: the next one is of the file
// that is furthest behind its weight, as long as it has any.
std::vector<MixtureOrder::Place> validation_mixture(std::span<const double> weights,
                                                    std::span<const std::uint64_t> counts);

}  // namespace lockstep::train
