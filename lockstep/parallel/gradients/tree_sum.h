// Sums buffers that arrive one after the other by a fixed binary tree: neighbours first, then
// pairs, then fours.
//
//   buffer  0   1   2   3   4   5   6   7
//            \ /     \ /     \ /     \ /
//             \_______/       \_______/
//                 \_______________/
//
// A worker with the buffers 4 .. 7 computes the right half of this tree. So if every worker has a
// power of two of buffers, and their results are summed by the same tree, the bits do not depend on
// the number of workers.
//
// It keeps one buffer for every level of the tree, beside those that it sums. On the CPU the
// calling thread adds, so that a communication thread can; on a GPU the operations do, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::parallel {

class TreeSum {
 public:
  TreeSum() = default;  // for one buffer
  // Of buffers on `device`: that of `ops`, which must outlive it, or the CPU.
  TreeSum(Ops& ops, Device device, std::size_t elements, std::int64_t most_rows);

  static std::size_t bytes(std::size_t elements, std::int64_t most_rows);

  // Adds buffer `index`, which is not the last one. `buffer` may be reused afterwards.
  void keep(const Tensor& buffer, std::int64_t index);
  // Buffer `index` is the last one: adds the kept buffers to `part` of it, which begins at element
  // `first`.
  void finish(const Tensor& part, std::size_t first, std::int64_t index) const;

 private:
  Tensor level(std::size_t index) const;

  Ops* ops_ = nullptr;
  std::int64_t elements_ = 0;
  std::vector<Buffer> levels_;
};

}  // namespace lockstep::parallel
