// How the bytes of a memory plan change over the steps of its schedule (nn/memory/memory_plan.h):
// what a picture of the plan stacks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::nn {

struct MemoryOverSteps {
  // A class, the activations of all blocks being one; those of the host have "host " before them.
  struct Band {
    std::string name;
    std::vector<std::size_t> bytes;  // of each column
  };

  int blocks = 0;          // forward is steps 0 .. blocks - 1, backward as many, then the optimizer
  std::vector<int> steps;  // of each column, ascending
  std::vector<Band> bands;
};

// Of device and host, without what layouts lose in gaps. A plan of more steps than `most_columns`
// has a column for several consecutive ones: for the one of them with most bytes.
MemoryOverSteps memory_over_steps(const MemoryPlan& plan, std::size_t most_columns = 512);

}  // namespace lockstep::nn
