// Small helpers for text that people typed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The candidate with the fewest edits to `typed`; empty when none is near.
std::string_view nearest(std::string_view typed, std::span<const std::string_view> candidates);

// " (did you mean X?)" with the nearest candidate, to append to a message; empty when none is near.
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> candidates);

// "1 rank", "4 ranks"
std::string counted(std::size_t count, std::string_view noun);

// "0, 2 and 3"
std::string join_ranks(std::span<const int> ranks);

std::vector<std::string_view> split_text(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace lockstep
