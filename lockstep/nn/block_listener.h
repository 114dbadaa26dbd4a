// Hears when a replica enters and leaves a block: the seam of every strategy (nn/replica.h). What a
// block's pass writes has been queued when after_... is called, and is there after
// Ops::synchronize().
#pragma once

#include <cstddef>

namespace lockstep::nn {

class BlockListener {
 public:
  virtual ~BlockListener() = default;
  virtual void before_forward(std::size_t /*block*/) {}
  virtual void after_forward(std::size_t /*block*/) {}
  // Around recomputation and backward together.
  virtual void before_backward(std::size_t /*block*/) {}
  // The gradients of this block's range are complete, as far as this micro-batch goes.
  virtual void after_backward(std::size_t /*block*/) {}
};

}  // namespace lockstep::nn
