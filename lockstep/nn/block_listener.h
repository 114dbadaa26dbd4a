// Hears when a replica enters and leaves a block: the seam of every strategy
// (nn/replica/replica.h). What a block's pass writes has been queued when after_... is called, and
// is there after Ops::synchronize().
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
  // Between these two, as backward goes: it has finished with the parameters of this block's range
  // (nn/parameters/flat_parameters.h) up to element `end` of the flat buffer. Their gradients are
  // complete, as far as this micro-batch goes, and their values are not read any more. `end` grows
  // from call to call. A block that does not say what it has finished with (Pass::finished) is not
  // told of here.
  virtual void finished_up_to(std::size_t /*block*/, std::size_t /*end*/) {}
  // Likewise, for a gradient that is large and made in parts, as that of logits is: this block adds
  // no more to these elements of the flat buffer, but may still read their values. From the start
  // of a parameter on, be it tied to another block's; the range grows from call to call.
  virtual void accumulated(std::size_t /*block*/, const FlatRange& /*range*/) {}
  // What finished_up_to() says holds for all of this block's range.
  virtual void after_backward(std::size_t /*block*/) {}
};

}  // namespace lockstep::nn
