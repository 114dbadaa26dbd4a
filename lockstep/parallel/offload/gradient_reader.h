// This worker's part of a block's gradients to be read a little at a time, wherever it lies.
#pragma once

#include <cstddef>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/offload/tier_mover.h"

namespace lockstep::parallel {

class GradientReader {
 public:
  // Of those in a file, by the thread that updates; `ops` works with what is read. All outlive it.
  GradientReader(nn::Replica& replica, Ops& ops, TierMover& mover)
      : replica_(replica), ops_(ops), mover_(mover) {}

  // A range of the part. Those in a file hold until the next call, are no more than
  // MemoryPlan::staged_elements, and lie where the optimizer computes.
  Tensor read(std::size_t block, nn::FlatRange range) {
    const auto count = static_cast<std::int64_t>(range.elements);
    if (replica_.gradient_file() == nullptr) {
      return replica_.mine(block).gradients.slice(static_cast<std::int64_t>(range.first), count);
    }
    ops_.synchronize();  // what was read before is worked with
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
