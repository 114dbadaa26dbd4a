// Data whose right answer is known without communicating, and cheap to check in full.
//
// Every rank fills each of its blocks from a *stream*: small whole numbers with a period of a
// prime number of elements, so that data which lands at a wrong offset does not look right by
// chance. Each iteration starts at another place of the period, so that the result of an earlier
// call does not look right either. Sums of streams are small enough to be exact in every dtype;
// the order of summation cannot matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/task.h"

namespace lockstep::bench {

class Pattern {
 public:
  // The sum of some streams (a single one for an input). `terms` bounds the number of streams in a
  // sum; all patterns of one task have the same.
  Pattern(DType dtype, int terms, std::span<const std::uint32_t> streams);

  void write(std::byte* to, std::size_t count, std::uint64_t iteration) const;

  // The index of the first element that differs, or `count`.
  std::size_t first_wrong(const std::byte* data, std::size_t count, std::uint64_t iteration) const;

 private:
  std::size_t start(std::uint64_t iteration) const;

  std::size_t element_;
  std::vector<std::byte> period_;  // once from any start: twice the period
};

// The patterns of one task on one rank.
class Expectation {
 public:
  Expectation(const Task& task, int rank, int ranks);

  void write_input(std::byte* in, std::uint64_t iteration) const;
  // Empty when all of `out` is right, or words for the first element that is not.
  std::string check_output(const std::byte* out, std::uint64_t iteration) const;

 private:
  std::size_t element_;
  std::size_t block_;
  std::vector<Pattern> in_;   // of each block
  std::vector<Pattern> out_;  // of each block
};

}  // namespace lockstep::bench
