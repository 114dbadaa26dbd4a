// A clock for pictures of a step: how long each block computes, by its FLOPs at a given speed. Only
// matrix products count, so blocks without any take no time.
#pragma once

#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::cli {

class StepClock {
 public:
  StepClock(const nn::MemoryPlan& plan, double flops_per_second);

  // Seconds from the start of the step.
  double forward_begin(std::size_t block) const { return forward_[block]; }
  double forward_end(std::size_t block) const { return forward_[block + 1]; }
  double backward_begin(std::size_t block) const { return backward_[block + 1]; }
  double backward_end(std::size_t block) const { return backward_[block]; }
  double forward_seconds() const { return forward_.back(); }
  double end() const { return backward_.front(); }

  // When backward has finished with the gradients up to `element` of the flat buffer, which a
  // block's backward completes at an even pace from the start of its range on.
  double finished(const nn::FlatParameters& flat, std::size_t block, std::size_t element) const;

 private:
  std::vector<double> forward_;   // begin of each block, and the end of the last
  std::vector<double> backward_;  // end of each block, and the begin of the last
};

}  // namespace lockstep::cli
