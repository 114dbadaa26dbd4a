// How much memory a process has in RAM.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace lockstep {

// The most that this process has had at once, all of it counted: VmHWM. Bytes; 0 where the kernel
// does not tell.
std::size_t peak_resident_bytes();
// Counts from the present size on. Does nothing where the kernel cannot.
void reset_peak_resident();

// What a process has now, in RAM or swapped out: of a page that several have mapped its share of it
// (PSS), so that the numbers of processes may be added up. None: it has ended, or the kernel does
// not tell.
std::optional<std::size_t> proportional_bytes(pid_t process);

}  // namespace lockstep
