// The optimizer step of a single worker on an asynchronous device: the global norm, clipping and
// the update are queued together, and the host waits once, at the end.
//
// The host reads no number in between: the clipping factor stays on the device. If a gradient is
// not finite the factor is NaN, and the update changes nothing. The numbers of a step (learning
// rate, number of the update, loss scale) are in device memory, so the operations are captured once
// and launched for every step.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep::parallel {

class DeviceUpdate {
 public:
  // Whether a replica is updated this way: it has the whole model, and all states are on a device
  // other than the CPU.
  static bool serves(const nn::MemoryPlan& plan);
  // The device memory it needs; 0 if it is not used.
  static std::size_t bytes(const nn::MemoryPlan& plan);

  // The replica must outlive it. `by_block`: chunks of gradients are those of
  // parallel/gradients/gradient_chunks.h, so that the norm has the bits that shards give; else they
  // are those of the whole flat buffer, which takes one kernel.
  DeviceUpdate(nn::Replica& replica, bool by_block);

  // Waits for all operations of the replica.
  UpdateResult run(const UpdateRequest& request);

 private:
  void queue(const optim::OptimizerOptions& options);
  Tensor queue_squares();
  void upload(const UpdateRequest& request);

  nn::Replica& replica_;
  const bool by_block_;
  Buffer memory_;
  Tensor numbers_;  // f64: learning rate, number of the update, loss scale
  Tensor results_;  // f64: norm, gradient scale
  Tensor squares_;  // f64, one for each chunk of the gradients
  Tensor segments_;
  PinnedBuffer host_;  // the same numbers and results
  int runs_ = 0;
  std::unique_ptr<CapturedStep> captured_;
};

}  // namespace lockstep::parallel
