// Tracks the slices of a worker that are out: pushed and not yet back.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/parallel/server/slices/slices.h"

namespace lockstep::parallel {

class SlicesOut {
 public:
  SlicesOut() = default;
  SlicesOut(std::span<const Slice> slices, std::size_t blocks) : out_(slices.size()) {
    for (const Slice& slice : slices) block_of_.push_back(slice.block);
    of_block_.resize(blocks);
  }

  std::size_t slices() const { return out_.size(); }
  bool is_out(std::size_t slice) const { return out_[slice]; }
  // The number of slices that are out, of a block or of all.
  std::size_t count(std::optional<std::size_t> block) const {
    return block ? of_block_[*block] : count_;
  }

  void leaves(std::size_t slice) {
    if (out_[slice]) fail(ErrorCode::kInvalidArgument, "slice {} is out already", slice);
    if (count_++ == 0) since_ = SteadyClock::now();
    out_[slice] = true;
    ++of_block_[block_of_[slice]];
  }
  void is_back(std::size_t slice) {
    out_[slice] = false;
    --of_block_[block_of_[slice]];
    if (--count_ == 0) seconds_ += seconds_since(since_);
  }

  // The seconds during which any slice was out, since the last call.
  double take_seconds() {
    if (count_ > 0) {
      seconds_ += seconds_since(since_);
      since_ = SteadyClock::now();
    }
    return std::exchange(seconds_, 0);
  }

 private:
  std::vector<bool> out_;              // by slice
  std::vector<std::size_t> block_of_;  // by slice
  std::vector<std::size_t> of_block_;  // out, by block
  std::size_t count_ = 0;
  double seconds_ = 0;
  SteadyClock::time_point since_{};
};

}  // namespace lockstep::parallel
