// How a rank that ends because of others names them to its launcher: by the last line of its
// standard error, behind its error, "  at fault: rank 0" or "  at fault: ranks 0, 2".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string blame_line(std::span<const int> ranks);
// The ranks; none for any other line.
std::vector<int> parse_blame(std::string_view line);

}  // namespace lockstep
