// Which part of the buffers of a call belongs to which rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "lockstep/comm/call.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/shared/group.h"

namespace lockstep::shared {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// Part `index` of `parts` of `count` elements, cut at multiples of 64 elements so that no cache
// line has two writers.
inline Range part_of(std::size_t count, int parts, int index) {
  constexpr std::size_t kGrain = 64;
  const std::size_t grains = (count + kGrain - 1) / kGrain;
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  return {std::min(count, grains * i / n * kGrain), std::min(count, grains * (i + 1) / n * kGrain)};
}

// The layout of a validated call for rank `me_` of `n_` ranks on one node.
class CallLayout {
 protected:
  CallLayout(const Call& call, const Fingerprint& fingerprint, int me, int ranks)
      : call_(call),
        element_(size_of(dtype_of_call(call))),
        me_(me),
        n_(ranks),
        count_(fingerprint.count),
        block_(call.kind == Collective::kAllToAll ? count_ / static_cast<std::size_t>(n_)
                                                  : count_) {}

  bool gives(int j) const {
    return !(call_.kind == Collective::kBroadcast || call_.kind == Collective::kScatter) ||
           j == call_.root;
  }
  bool gets(int j) const {
    return !(call_.kind == Collective::kReduce || call_.kind == Collective::kGather) ||
           j == call_.root;
  }

  // Block j of a vector with one block per rank, in elements.
  Range block(int j) const {
    if (call_.varying) {
      const auto begin =
          std::accumulate(call_.counts.begin(), call_.counts.begin() + j, std::size_t{0});
      return {begin, begin + call_.counts[static_cast<std::size_t>(j)]};
    }
    return {block_ * static_cast<std::size_t>(j), block_ * static_cast<std::size_t>(j + 1)};
  }

  std::size_t input_elements(int j) const {
    switch (call_.kind) {
      case Collective::kAllGather:
      case Collective::kGather:
        return block(j).size();
      case Collective::kScatter:
      case Collective::kReduceScatter:
      case Collective::kAllToAll:
        return block(n_ - 1).end;
      default:
        return count_;
    }
  }
  std::size_t input_bytes(int j) const { return input_elements(j) * element_; }
  std::size_t largest_input_bytes() const {
    if (!call_.varying) return input_bytes(0);
    std::size_t largest = 0;
    for (int j = 0; j < n_; ++j) largest = std::max(largest, input_bytes(j));
    return largest;
  }

  // Whether an input has a block for every rank, of which rank j wants block j.
  bool blocked() const {
    return call_.kind == Collective::kScatter || call_.kind == Collective::kReduceScatter ||
           call_.kind == Collective::kAllToAll;
  }

  // A rank stages for others its input without its own block, without a gap. These functions return
  // the staged bytes that others read of this rank, and those that this rank reads of rank j.
  PayloadBytes bytes_for_others() const {
    if (!gives(me_)) return {};
    return {0, input_bytes(me_) - (blocked() ? block(me_).size() * element_ : 0)};
  }
  PayloadBytes bytes_for_me(int j) const {
    if (!blocked()) return {0, input_bytes(j)};
    const Range mine = block(me_);
    const std::size_t left_out = j < me_ ? block(j).size() : 0;
    return {(mine.begin - left_out) * element_, (mine.end - left_out) * element_};
  }
  // The part of another rank's input that is for this rank.
  const std::byte* my_part(const std::byte* input) const {
    return blocked() ? input + block(me_).begin * element_ : input;
  }

  const Call& call_;
  std::size_t element_;  // bytes
  int me_;
  int n_;
  std::size_t count_;  // elements, as all ranks agree on them

 private:
  std::size_t block_;  // elements of a block, where blocks do not vary
};

}  // namespace lockstep::shared
