// Main memory as a DeviceMemory.
//
// Allocations of 2 MiB and more are separate mappings at a multiple of 2 MiB, with huge pages
// advised. Freeing one returns it to the system at once.
#pragma once

#include "lockstep/tensor/device_memory.h"

namespace lockstep {

DeviceMemory& cpu_memory();

}  // namespace lockstep
