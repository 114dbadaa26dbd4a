// Flags of commands with several sizes and numbers of ranks.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace lockstep::cli {

inline constexpr int kMostRanks = 1024;
inline constexpr std::size_t kSizeFactor = 8;  // from one size of a range to the next

// "4,8" or "4x2": whole numbers from 1 up. Throws Error(kInvalidArgument) that names the flag and
// shows the example.
std::vector<int> parse_numbers(std::string_view flag, std::string_view text, char separator,
                               std::string_view example);

// The value of --ranks: numbers from 1 to `most`, each once, in the order given.
std::vector<int> parse_ranks(std::string_view text, int most = kMostRanks);

}  // namespace lockstep::cli
