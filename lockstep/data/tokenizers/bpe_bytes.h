// The visible characters with which byte-level BPE writes bytes.
//
// Bytes that are visible in Latin-1 stand for themselves; the other 68 become U+0100 and up, in
// order, so that a blank is written as U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::data {

char32_t visible_of(unsigned char byte);
std::string to_visible(std::string_view bytes);
// Returns nothing if a character stands for no byte.
std::optional<std::string> from_visible(std::string_view text);

}  // namespace lockstep::data
