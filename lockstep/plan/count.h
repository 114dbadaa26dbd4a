// Exact whole numbers of parameters and bytes, with overflow checks.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace lockstep::plan {

using Count = std::uint64_t;

// Throw Error(kInvalidArgument) where the result does not fit 64 bits.
Count product(std::initializer_list<Count> factors);
Count sum(std::initializer_list<Count> terms);

inline Count divide_up(Count count, Count parts) { return count / parts + (count % parts != 0); }

}  // namespace lockstep::plan
