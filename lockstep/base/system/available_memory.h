// The free memory of this machine.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

// Bytes that processes can take before the machine swaps, or before one of the control groups of
// this process (a container's, a batch job's) is at its limit, whichever is less. Control groups of
// versions 1 and 2 count, and so do their parents. Returns 0 where the kernel reports nothing.
// `root` is the folder that holds /proc and the control groups.
std::size_t available_memory_bytes(const std::string& root = "");

}  // namespace lockstep
