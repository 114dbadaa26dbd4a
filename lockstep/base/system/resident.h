// The resident memory of a process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace lockstep {

// The peak resident memory of this process in bytes (VmHWM); 0 if the kernel does not report it.
std::size_t peak_resident_bytes();
// Resets the peak to the current size. Does nothing if the kernel does not support it.
void reset_peak_resident();

// The proportional set size (PSS) of a process plus what is swapped out: a page that n processes
// map counts 1/n, so processes can be summed. Nothing if it has ended, or if the kernel does not
// report it.
std::optional<std::size_t> proportional_bytes(pid_t process);

}  // namespace lockstep
