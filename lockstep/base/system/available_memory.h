// How much memory this machine can still give.
#pragma once

#include <cstddef>

namespace lockstep {

// Bytes that processes can take before the machine swaps, or before the control group of this
// process (a container's) is at its limit, whichever is less. 0 where the kernel does not tell.
std::size_t available_memory_bytes();

}  // namespace lockstep
