// White space at the ends of a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::data {

// Bytes of white space at the front.
std::size_t front_space(std::string_view text);
// Bytes of `text` without white space at its end.
std::size_t without_back_space(std::string_view text);

}  // namespace lockstep::data
