// Callbacks before and after each block of a replica; strategies implement them
// (nn/replica/replica.h). When after_... is called, the block's operations are queued; their
// results are complete after Ops::synchronize().
#pragma once

#include <cstddef>

namespace lockstep::nn {

struct FlatRange;

class BlockListener {
 public:
  virtual ~BlockListener() = default;
  virtual void before_forward(std::size_t /*block*/) {}
  virtual void after_forward(std::size_t /*block*/) {}
  // Around recomputation and backward together.
  virtual void before_backward(std::size_t /*block*/) {}
  // Called between these two: backward has finished with the parameters of this block's range
  // (nn/parameters/flat_parameters.h) up to element `end` of the flat buffer. Their gradients are
  // final for this micro-batch, and their values are not read any more. `end` grows from call to
  // call. Only for blocks that call Pass::finished.
  virtual void finished_up_to(std::size_t /*block*/, std::size_t /*end*/) {}
  // The same for a large gradient that is made in parts, like that of logits: this block adds no
  // more to these elements of the flat buffer, but may still read their values. The range starts at
  // a parameter, which may be tied to another block's, and grows from call to call.
  virtual void accumulated(std::size_t /*block*/, const FlatRange& /*range*/) {}
  // Where gradients of weights are computed later (Pass::weight_gradients): the rest of backward is
  // done. They follow, and then after_backward().
  virtual void after_backward_input(std::size_t /*block*/) {}
  virtual void before_backward_weight(std::size_t /*block*/) {}
  // Backward has finished with this block's whole range.
  virtual void after_backward(std::size_t /*block*/) {}
};

}  // namespace lockstep::nn
