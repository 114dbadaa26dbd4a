// Main memory as a DeviceMemory.
//
// From 2 MiB on an allocation is a mapping of its own at a multiple of 2 MiB, for which huge pages
// are advised; it goes back to the system as soon as it is freed.
#pragma once

#include "lockstep/tensor/device_memory.h"

namespace lockstep {

DeviceMemory& cpu_memory();

}  // namespace lockstep
