// Which block's backward is the first to add to the gradients of a block.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::parallel {

// For each block: the last block that uses its parameters, which is another one if they are tied.
std::vector<std::size_t> first_writers(const nn::MemoryPlan& plan);

}  // namespace lockstep::parallel
