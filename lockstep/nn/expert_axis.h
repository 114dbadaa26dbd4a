// The communication of an expert group inside a layer's feed-forward (nn/expert_group.h).
//
// Every rank routes its own tokens. Its routed rows are grouped by expert, and so by the rank that
// has the expert. What a rank gets is grouped by the rank that it comes from, and in that by its
// experts:
//
//   4 experts, 2 ranks      rank 0 routes  0 0 | 1 | 2 2 2 |        to experts 0, 1, 2, 3
//                           rank 1 routes  0 | | 2 | 3 3
//   rank 0 then has         0 0 1 | 0                               from rank 0, from rank 1
//   rank 1 then has         2 2 2 | 2 3 3
//
// Counts come first, so every size is known. Any of them may be 0.
//
// On a GPU all of it is queued among the operations, and an error is found as in a TensorAxis.
//
// All ranks of the group call the same methods in the same order. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/axis_cost.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class ExpertAxis {
 public:
  // `group` has the ranks of the expert group, in order; `data` has the same ranks and is of the
  // device that tensors lie on, staged and with messages there (comm/device_communicator.h). Both
  // must outlive it.
  ExpertAxis(Communicator& group, Communicator& data) : group_(group), data_(data) {}
  explicit ExpertAxis(Communicator& group) : ExpertAxis(group, group) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // counts: i32 [experts], rows that this rank routes to each. received: i32 [experts], the rows
  // that come to each of this rank's experts, by the rank that they come from.
  void exchange_counts(Ops& ops, const Tensor& counts, const Tensor& received);

  // The first rows of `from`, sent[r] of them to rank r, one rank after the other, become the first
  // rows of `to`, received[r] of them from rank r. Both are [rows, ...] of one type.
  void exchange_rows(Ops& ops, const Tensor& from, std::span<const std::size_t> sent,
                     const Tensor& to, std::span<const std::size_t> received);

  // Sums over all ranks take the place of the numbers, with the same bits on all of them.
  void sum(std::span<double> numbers);

  // After the host has waited for the operations: throws the error of a call among them.
  void throw_failure() const;

  AxisCost take_cost();  // since the last call

 private:
  template <class Body>
  void timed(Communicator& group, Body&& body);
  // A call on what operations have written before it and read after it.
  void run(Ops& ops, const Call& call);
  void queue_rows(Ops& ops, const Tensor& from, std::span<const std::size_t> sent, const Tensor& to,
                  std::span<const std::size_t> received);

  Communicator& group_;
  Communicator& data_;
  AxisCost cost_;
};

}  // namespace lockstep::nn
