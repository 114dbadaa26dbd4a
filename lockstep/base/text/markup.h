// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// `text` as it has to be written between tags, or between quotes of either kind in an attribute.
std::string escape_markup(std::string_view text);

}  // namespace lockstep
