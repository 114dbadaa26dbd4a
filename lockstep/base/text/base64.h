// Base64, as JSON files carry bytes (RFC 4648, with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Nothing when the text is not Base64: another character, a length that is not a multiple of 4, or
// bits of the last character that belong to no byte.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace lockstep
