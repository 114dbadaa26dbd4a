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
// Between nodes a sum takes long, and a rank has nothing else to do. So a product can be computed
// in chunks of tokens: the sum of a chunk travels while the next one is computed (Sums).
//
// On a GPU these calls are queued among the operations, and the host does not wait. An error of one
// is thrown by the first later call whose result the host reads, or by throw_failure().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/axis_cost.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class TensorAxis {
 public:
  // `group` has the ranks of the tensor group, in order; `data` has the same ranks and is of the
  // device that tensors lie on, staged (comm/device_communicator.h). Both must outlive it.
  // `chunks`: of tokens, in which products are computed whose results are summed.
  TensorAxis(Communicator& group, Communicator& data, int chunks = 1)
      : group_(group), data_(data), chunks_(chunks) {}
  explicit TensorAxis(Communicator& group, int chunks = 1) : TensorAxis(group, group, chunks) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  int chunks() const { return chunks_; }

  // The sum over all ranks takes the place of x, with the same bits on all of them.
  void sum(Ops& ops, const Tensor& x);

  // Sums of tensors beside computation. The tensors are not touched until wait() has returned. Sums
  // that are dropped before, by an error, end all calls of the group.
  class Sums {
   public:
    explicit Sums(TensorAxis& axis) : axis_(axis) {}
    Sums(const Sums&) = delete;
    Sums& operator=(const Sums&) = delete;
    ~Sums();

    void start(Ops& ops, const Tensor& x);
    void wait();

   private:
    TensorAxis& axis_;
    std::vector<Work> started_;
    std::uint64_t sent_before_ = 0;
  };
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

  // Ends all calls of all ranks, now and later, with Error(kAborted, reason).
  void abort(std::string_view reason) { group_.abort(reason); }

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
  int chunks_;
  AxisCost cost_;
};

}  // namespace lockstep::nn
