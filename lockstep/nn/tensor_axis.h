// The communication of a tensor group inside a block's forward and backward
// (nn/tensor_shard.h).
//
// Every rank computes with its shards and holds the same activations between blocks. A product over
// a divided dimension gives each rank a partial sum; sum() replaces it by the sum over all ranks.
// Layers that divide their outputs sum in backward, those that divide their inputs in forward, so a
// transformer layer sums twice in each. With sequence parallelism every sum is a reduce-scatter of
// tokens, and tokens are gathered before the next product, and once more in backward: five quarters
// of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/axis_cost.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class TensorAxis {
 public:
  // `group` has the ranks of the tensor group, in order, and must outlive it.
  explicit TensorAxis(Communicator& group) : group_(group) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // The sum over all ranks takes the place of x, with the same bits on all of them.
  void sum(Ops& ops, const Tensor& x);
  // The same of a number, and whether a condition holds on any rank.
  double sum(double mine);
  bool any(bool mine);
  // all = [ranks, ...]: what each rank has in all.row(its rank).
  void gather(Ops& ops, const Tensor& all);

  // A rank's rows of the sum over all ranks of `all`, [ranks * rows, width]. / All rows, of those
  // that each rank has.
  void scatter_sum(Ops& ops, const Tensor& all, const Tensor& mine);
  void gather_rows(Ops& ops, const Tensor& mine, const Tensor& all);

  AxisCost take_cost();  // since the last call

 private:
  template <class Body>
  void timed(Body&& body);

  Communicator& group_;
  AxisCost cost_;
};

}  // namespace lockstep::nn
