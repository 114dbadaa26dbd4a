// Small helpers for text that people typed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The candidate with the fewest edits to `typed`; empty when none is near.
std::string_view nearest(std::string_view typed, std::span<const std::string_view> candidates);

// "0, 2 and 3"
std::string join_ranks(std::span<const int> ranks);

std::vector<std::string_view> split_text(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace lockstep
