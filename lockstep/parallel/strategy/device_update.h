// The optimizer's step of a single worker on a device that works beside the host: the norm of all
// gradients, clipping and the update are queued in one go, and the host waits once, at their end.
//
// Nothing of it depends on a number that the host reads in between: the clipping factor stays on
// the device, and where a gradient is not finite it is NaN, at which the update changes nothing.
// The numbers of a step (learning rate, number of the update, loss scale) lie in device memory, so
// the operations are captured once and launched again for every step.
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
  // Whether a replica is updated this way: all its states lie on a device that is not the CPU.
  static bool serves(const nn::MemoryPlan& plan);
  // What it takes there; 0 where it does not serve.
  static std::size_t bytes(const nn::MemoryPlan& plan);

  // The replica outlives it.
  explicit DeviceUpdate(nn::Replica& replica);

  // Waits for all operations of the replica.
  UpdateResult run(const UpdateRequest& request);

 private:
  void queue(const optim::OptimizerOptions& options);
  void upload(const UpdateRequest& request);

  nn::Replica& replica_;
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
