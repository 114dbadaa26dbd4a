// The memory and cost of blocks in each recompute mode: enough to compute the peak without a
// layout.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::nn {

template <class T>
using PerMode = std::array<T, std::size(plan::kAllRecompute)>;
inline std::size_t index_of(Recompute mode) { return static_cast<std::size_t>(mode); }

// The cost in FLOPs of an element that is recomputed without a matrix product, by order of
// magnitude: on layers of width 768, selective recomputation took the time of 50 to 190 FLOPs per
// element.
inline constexpr double kElementFlops = 100;

// The cost of recomputation per micro-batch in each block of a plan, compared with `none`, the same
// plan without recomputation.
std::vector<double> recompute_costs(const MemoryPlan& plan, const MemoryPlan& none);

// The device memory of a block in a mode.
struct Footprint {
  std::size_t kept = 0;      // from its forward to its backward
  std::size_t forward = 0;   // in its forward
  std::size_t backward = 0;  // in its backward
  std::size_t leaves = 0;    // of forward, in the step after that too, on its way to another tier
  std::size_t comes = 0;     // of backward, in the step before that too
  double cost = 0;

  friend bool operator==(const Footprint&, const Footprint&) = default;
  bool is_no_worse(const Footprint& other) const {
    return kept <= other.kept && forward <= other.forward && backward <= other.backward &&
           leaves <= other.leaves && comes <= other.comes && cost <= other.cost;
  }
};

class Footprints {
 public:
  // `plans` differ only in the mode, which is the same for all blocks of a plan.
  explicit Footprints(const PerMode<MemoryPlan>& plans);

  std::size_t blocks() const { return of_.size(); }
  const PerMode<Footprint>& of(std::size_t block) const { return of_[block]; }

  // The peak on the device: a lower bound of the layout of a choice, and usually exact.
  std::size_t most_alive(const std::vector<Recompute>& choice) const;
  // The minimum over all choices.
  std::size_t least_alive() const;
  // A lower bound of the bytes in other tiers.
  std::size_t elsewhere() const { return elsewhere_; }

 private:
  // Block i has footprint_of(i).
  template <class FootprintOf>
  std::size_t most_alive_of(const FootprintOf& footprint_of) const;
  void read(const MemoryPlan& plan, const MemoryPlan& none, std::size_t mode);

  std::vector<PerMode<Footprint>> of_;
  std::vector<std::size_t> base_;        // of each step: bytes that do not depend on the choice
  std::size_t elsewhere_on_device_ = 0;  // not laid out with it
  std::size_t elsewhere_ = 0;            // in other tiers
};

}  // namespace lockstep::nn
