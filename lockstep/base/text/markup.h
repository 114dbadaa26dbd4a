// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Escapes `text` for use between tags and in quoted attributes.
std::string escape_markup(std::string_view text);

}  // namespace lockstep
