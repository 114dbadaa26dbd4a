// What an update on the host needs to know of the step that is computed beside it.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/memory/memory_plan.h"

namespace lockstep::parallel {

// For the forward of each block: how many blocks, from the first on, have what it reads. What comes
// to the device block by block is copied when the plan says so, which is earlier. The last block's
// forward needs all of them.
std::vector<std::size_t> needed_blocks(const nn::MemoryPlan& plan);

// Threads of an update beside compute on the device. On the CPU that has all cores but one; beside
// a GPU one core queues the operations.
int update_threads(Device device);

}  // namespace lockstep::parallel
