// The limit of open descriptors of this process. The soft limit is often far below the hard limit,
// and a process may raise it up to that.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

// Raises the soft limit to the hard one and returns it. May be called repeatedly.
std::size_t raise_descriptor_limit();

// Restores, in a child between fork and exec, the limit that this process was started with: a
// program may use select(), which fails for high descriptors.
void restore_descriptor_limit();

// Raises the limit. Throws Error(kSystem) if fewer than `needed` are allowed. `who` names the user
// in the message: "rank 3 of 256".
void expect_descriptors(std::size_t needed, std::string_view who);

}  // namespace lockstep
