// Which backward is the first to add to a block's gradients.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::parallel {

// Of each block's: the last block that works with its parameters, which is another one where they
// are tied.
std::vector<std::size_t> first_writers(const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
