// Chooses the recompute modes of blocks: the cheapest choice that fits a budget.
//
// Each block recomputes nothing, a part or all (nn/block.h): its *mode*. The cost of a mode is
// counted in FLOPs per micro-batch: those of recomputed matrix products, plus kElementFlops for
// every other recomputed element (norms, activations). The cost of a choice is the sum over blocks;
// its memory follows from a plan.
//
//   live bytes      |        ____
//   of a step       |   ____/    \____        a block's kept bytes are there from its forward to
//                   |__/              \__     its backward: those of early blocks the longest
//                   +----------------------> step
//
// Blocks that declare the same are *alike*, the layers of a model. For alike blocks only the number
// of blocks per mode is chosen: the earlier ones keep less, because swapping two of them that way
// never raises the peak. Choices are tried in the order of their cost; those whose live bytes
// exceed the budget are skipped, the others are planned, and the first plan that fits is the
// cheapest.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/nn/memory/recompute_footprint.h"

namespace lockstep::nn {

// The memory limits of a worker; 0: no limit.
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
  bool fits = false;      // false: no choice fits; this one needs least
  std::size_t bytes = 0;  // of its plan
  double flops = 0;       // what it costs a micro-batch
};

// `plan_of` returns plans that differ only in the modes.
RecomputeFit cheapest_recompute(std::size_t blocks, const PlanOf& plan_of,
                                const MemoryLimits& limits);

// "full in layer.0 .. layer.3, selective in layer.4 .. layer.11": "none" where there is nothing.
std::string text(const std::vector<Recompute>& of_blocks, const Model& model);

}  // namespace lockstep::nn
