// Bytes as text: two lower-case hexadecimal digits each.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string to_hex(std::span<const std::byte> bytes);

// Upper case is read too; nothing when the text is not an even number of hexadecimal digits.
std::optional<std::vector<std::byte>> from_hex(std::string_view text);

}  // namespace lockstep
