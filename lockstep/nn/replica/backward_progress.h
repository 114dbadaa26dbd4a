// The progress of one block's backward in its range of the flat buffer.
//
// A block reports finished parameters in any order. Listeners get ranges of the flat buffer from
// the start of the block on. Parameters are there roughly in the order in which backward finishes
// them (nn/parameters/flat_parameters.h), so ranges grow with little delay. Final rows of a
// gradient are reported directly.
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
  // All arguments must outlive it.
  BackwardProgress(const FlatParameters& flat, std::size_t block, BlockListener& listener);

  // Throws Error(kInvalidArgument) for a parameter that was reported before. A tied parameter is
  // ignored; its owner reports it.
  void finished(std::size_t parameter) override;
  // Throws Error(kInvalidArgument) for rows that do not grow (for example if two parts of a block
  // report the same weight), and for too many rows.
  void accumulated(std::size_t parameter, std::int64_t rows) override;

 private:
  const FlatParameters& flat_;
  std::size_t block_;
  BlockListener& listener_;
  std::vector<bool> finished_;  // of the block's own, in the order of the flat buffer
  std::size_t next_ = 0;        // the first unfinished one
  std::map<std::size_t, std::int64_t>
      accumulated_;  // rows, by where their parameter begins in the flat buffer
};

}  // namespace lockstep::nn
