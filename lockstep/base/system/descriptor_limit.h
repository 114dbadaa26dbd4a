// How many descriptors this process may have open. The kernel's soft limit is often far below the
// hard one, and every process may raise it up to there.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

// Raises the soft limit to the hard one; the limit from now on. Any number of calls.
std::size_t raise_descriptor_limit();

// Gives a child, between fork and exec, the limit that this process was started with: a program may
// still use select(), which breaks with many descriptors.
void restore_descriptor_limit();

// Raises the limit, and throws Error(kSystem) where less than `needed` can be had. `who` needs
// them, for the message: "rank 3 of 256".
void expect_descriptors(std::size_t needed, std::string_view who);

}  // namespace lockstep
