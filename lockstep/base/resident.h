// How much memory this process has had in RAM at once, all of it counted: VmHWM.
#pragma once

#include <cstddef>

namespace lockstep {

// Bytes; 0 where the kernel does not tell.
std::size_t peak_resident_bytes();
// Counts from the present size on. Does nothing where the kernel cannot.
void reset_peak_resident();

}  // namespace lockstep
