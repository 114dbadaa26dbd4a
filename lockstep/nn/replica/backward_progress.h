// How far the backward of one block has come with its range of the flat buffer.
//
// A block says parameter by parameter what it has finished with, in any order. What others take
// along are ranges of the flat buffer, from the start of the block's on; there the parameters stand
// about in the order in which backward finishes with them (nn/parameters/flat_parameters.h), so
// that little waits for its neighbour. Rows of a gradient that are final are reported as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/parameters/flat_parameters.h"

namespace lockstep::nn {

class BackwardProgress final : public FinishedListener {
 public:
  // All outlive it.
  BackwardProgress(const FlatParameters& flat, std::size_t block, BlockListener& listener);

  // Throws Error(kInvalidArgument) for a parameter that it was told of before. One that is tied to
  // another block's is left to that one.
  void finished(std::size_t parameter) override;
  // Throws Error(kInvalidArgument) for rows that do not grow, as where two parts of a block add to
  // one weight and each says that it has, and for more rows than there are.
  void accumulated(std::size_t parameter, std::int64_t rows) override;

 private:
  const FlatParameters& flat_;
  std::size_t block_;
  BlockListener& listener_;
  std::vector<bool> finished_;  // of the block's own, in the order of the flat buffer
  std::size_t next_ = 0;        // the first of these that is not
  std::map<std::size_t, std::int64_t>
      accumulated_;  // rows, by where their parameter begins in the flat buffer
};

}  // namespace lockstep::nn
