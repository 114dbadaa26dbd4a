// Which blocks compute again what they could keep: the cheapest choice that fits a budget.
//
// Each block does nothing again, a part of it or all (nn/block.h): its *mode*. What a mode costs is
// counted in FLOPs of a micro-batch: those of the matrix products that are done again, and for
// every element that is written again without one (norms, activations) kElementFlops. The cost of a
// choice is the sum over blocks; what it takes, only a plan can tell.
//
//   live bytes      |        ____
//   of a step       |   ____/    \____        a block's kept bytes are there from its forward to
//                   |__/              \__     its backward: those of early blocks the longest
//                   +----------------------> step
//
// Blocks that declare the same are *alike*, the layers of a model. Of alike blocks only how many
// have which mode is chosen: the earlier ones keep less, since exchanging two of them so that the
// earlier keeps less never raises the most that lives at once. Choices are taken in the order of
// what they cost; those whose live bytes are over the budget are passed over, the others planned,
// and the first whose plan fits is the cheapest.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/nn/memory/recompute_footprint.h"

namespace lockstep::nn {

// What a worker may take; 0: no limit.
struct MemoryLimits {
  std::size_t all = 0;     // of memory, MemoryPlan::bytes()
  std::size_t device = 0;  // on the device alone

  bool any() const { return all > 0 || device > 0; }
  bool allow(const MemoryPlan& plan) const;
};

// A plan in which blocks have these modes, one for each.
using PlanOf = std::function<MemoryPlan(const std::vector<Recompute>&)>;

struct RecomputeFit {
  std::vector<Recompute> of_blocks;
  bool fits = false;      // false: nothing does; this takes least
  std::size_t bytes = 0;  // of its plan
  double flops = 0;       // what it costs a micro-batch
};

// `plan_of` gives plans that differ in nothing but what follows from the modes.
RecomputeFit cheapest_recompute(std::size_t blocks, const PlanOf& plan_of,
                                const MemoryLimits& limits);

// "full in layer.0 .. layer.3, selective in layer.4 .. layer.11": "none" where there is nothing.
std::string text(const std::vector<Recompute>& of_blocks, const Model& model);

}  // namespace lockstep::nn
