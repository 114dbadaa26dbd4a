#include "lockstep/base/text/printable.h"

#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The length of the character at the front of `text` by its bytes; 0 where it is no UTF-8: overlong
// forms, surrogates and what is beyond U+10FFFF are none either.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const std::uint8_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<std::uint8_t>(character[0]);
  if (character.size() == 1) {
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  }
  // U+0080 .. U+009F, among them a second way to begin a terminal's commands.
  return first == 0xC2 && static_cast<std::uint8_t>(character[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    if (text.starts_with("\r\n")) text.remove_prefix(1);
    const std::size_t length = character_length(text);
    const std::string_view character = text.substr(0, length);
    shown += length == 0 || is_control(character) ? kReplacement : character;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return shown;
}

}  // namespace lockstep
