// The communication of a tensor group inside a block's forward and backward
// (nn/tensor_shard.h).
//
// Every rank computes with its shards and holds the same activations between blocks. A product over
// a divided dimension gives each rank a partial sum; sum() replaces it by the sum over all ranks.
// Layers that divide their outputs sum in backward, those that divide their inputs in forward, so a
// transformer layer sums twice in each. With sequence parallelism every sum is a reduce-scatter of
// tokens, and tokens are gathered before the next product, and once more in backward: five quarters
// of the bytes.
//
// On a GPU these calls are queued among the operations, and the host does not wait. An error of one
// is thrown by the first later call whose result the host reads, or by throw_failure().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/axis_cost.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class TensorAxis {
 public:
  // `group` has the ranks of the tensor group, in order; `data` has the same ranks and is of the
  // device that tensors lie on, staged (comm/device_communicator.h). Both must outlive it.
  TensorAxis(Communicator& group, Communicator& data) : group_(group), data_(data) {}
  explicit TensorAxis(Communicator& group) : TensorAxis(group, group) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // The sum over all ranks takes the place of x, with the same bits on all of them.
  void sum(Ops& ops, const Tensor& x);
  // The same of numbers, and whether a condition holds on any rank.
  void sum(std::span<double> numbers);
  bool any(bool mine);
  // all = [ranks, ...]: what each rank has in all.row(its rank).
  void gather(Ops& ops, const Tensor& all);

  // A rank's rows of the sum over all ranks of `all`, [ranks * rows, width]. / All rows, of those
  // that each rank has.
  void scatter_sum(Ops& ops, const Tensor& all, const Tensor& mine);
  void gather_rows(Ops& ops, const Tensor& mine, const Tensor& all);

  // Whether operations with these calls among them can be captured. Not where ranks are threads:
  // they share what CUDA needs to make a graph, which may wait for a call that waits for this rank.
  bool can_capture() const;
  // After the host has waited for the operations: throws the error of a call among them.
  void throw_failure() const;

  // Since the last call. Calls on a GPU take none of the host's time.
  AxisCost take_cost();
  // What was sent since then, and what calls send once more when they are launched again.
  std::uint64_t bytes_sent() const { return cost_.bytes_sent; }
  void add_sent(std::uint64_t bytes) { cost_.bytes_sent += bytes; }

 private:
  template <class Body>
  void timed(Communicator& group, Body&& body);
  // A call on what operations have written before it and read after it.
  void run(Ops& ops, const Call& call);

  Communicator& group_;
  Communicator& data_;
  AxisCost cost_;
};

}  // namespace lockstep::nn
