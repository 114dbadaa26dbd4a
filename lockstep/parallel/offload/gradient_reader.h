// Reads this worker's gradients of a block in small ranges, from any tier.
#pragma once

#include <cstddef>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/offload/tier_mover.h"

namespace lockstep::parallel {

class GradientReader {
 public:
  // Used by the thread that updates; `ops` computes with what is read. All arguments must outlive
  // it.
  GradientReader(nn::Replica& replica, Ops& ops, TierMover& mover)
      : replica_(replica), ops_(ops), mover_(mover) {}

  // A range of the gradients. From a file, it is valid until the next call, has at most
  // MemoryPlan::staged_elements, and is in the tier where the optimizer computes.
  Tensor read(std::size_t block, nn::FlatRange range) {
    const auto count = static_cast<std::int64_t>(range.elements);
    if (replica_.gradient_file() == nullptr) {
      return replica_.mine(block).gradients.slice(static_cast<std::int64_t>(range.first), count);
    }
    ops_.synchronize();  // what was read before may still be in use
    const Tensor to = replica_.staged_gradients().row(0).slice(0, count);
    mover_.await(mover_.fetch_gradients(block, range.first, to));
    return to;
  }

 private:
  nn::Replica& replica_;
  Ops& ops_;
  TierMover& mover_;
};

}  // namespace lockstep::parallel
