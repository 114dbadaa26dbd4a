// The free memory of this machine.
#pragma once

#include <cstddef>

namespace lockstep {

// Bytes that can be allocated before the machine swaps, or before this process's control group (its
// container) reaches its limit, whichever is less. 0 if the kernel does not report it.
std::size_t available_memory_bytes();

}  // namespace lockstep
