// Adds up buffers that come one after the other by one fixed binary tree, as if all were there at
// once: neighbours first, then pairs, then fours.
//
//   buffer  0   1   2   3   4   5   6   7
//            \ /     \ /     \ /     \ /
//             \_______/       \_______/
//                 \_______________/
//
// A worker that has the buffers 4 .. 7 makes the right half of this tree, whoever makes the left
// one. So sums over workers that have a power of two of buffers each, and add up their results by
// the same tree, have the same bits however many workers there are.
//
// What is kept meanwhile is one buffer for every level of the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::parallel {

class TreeSum {
 public:
  TreeSum() = default;  // for one buffer
  TreeSum(std::size_t elements, std::int64_t most_rows);

  static std::size_t bytes(std::size_t elements, std::int64_t most_rows);

  // Buffer `index` is there, and is not the last one: takes it up. `buffer` is free afterwards.
  void keep(std::span<float> buffer, std::int64_t index);
  // Buffer `index` is the last one: adds all that was kept to it, in the range of elements that
  // `part` of it is, which begins at `first`.
  void finish(std::span<float> part, std::size_t first, std::int64_t index) const;

 private:
  std::vector<std::vector<float>> levels_;
};

}  // namespace lockstep::parallel
