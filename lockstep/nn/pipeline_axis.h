// The communication between the stages of a pipeline: activations and gradients of micro-batches,
// and the few numbers of a step that all stages must agree on.
//
// Messages are started and travel beside compute; wait() says when they have arrived, or when a
// buffer that was sent may be overwritten. Where GPUs reach each other's memory, messages are
// queued among the operations instead, and the host does not wait. The messages from one stage to
// another are received in the order in which they were sent. Methods without a Work or an Ops are
// collective: all stages call them in the same order. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/axis_cost.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

class PipelineAxis {
 public:
  // `group` has one rank for each stage, in order; `data` has the same ranks and is of the device
  // that tensors lie on. Both must outlive it.
  PipelineAxis(Communicator& group, Communicator& data) : group_(group), data_(data) {}
  explicit PipelineAxis(Communicator& group) : PipelineAxis(group, group) {}

  int stage() const { return group_.rank(); }
  int stages() const { return group_.size(); }

  // Tensors live until the message has arrived.
  Work send(const Tensor& tensor, int stage);
  Work receive(const Tensor& tensor, int stage);
  void wait(const Work& work);

  // Whether messages are queued among the operations; else they are started.
  bool queues() const { return data_.backend() == "cuda"; }
  void queue_send(Ops& ops, const Tensor& tensor, int stage);
  void queue_receive(Ops& ops, const Tensor& tensor, int stage);
  // After the host has waited for the operations: throws the error of a message among them.
  void throw_failure() const;

  // What every stage gives, in order; all give as many.
  std::vector<double> gather(std::span<const double> mine);
  // The same for any number from each stage.
  std::vector<std::vector<double>> gather_lists(std::span<const double> mine);
  bool any(bool mine);
  // The sum over the stages `holders`, ascending, takes the place of their tensors, with the same
  // bits on all of them. The other stages call it too, with an absent tensor.
  void sum(const Tensor& tensor, const std::vector<int>& holders);

  // Ends all messages and calls of all stages, now and later, with Error(kAborted, reason).
  void abort(std::string_view reason) { group_.abort(reason); }

  AxisCost take_cost();  // since the last call

 private:
  template <class Body>
  void timed(Body&& body);

  Communicator& group_;
  Communicator& data_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> holders_;  // null on other stages
  AxisCost cost_;
};

}  // namespace lockstep::nn
