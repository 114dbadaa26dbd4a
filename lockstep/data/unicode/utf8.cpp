#include "lockstep/data/unicode/utf8.h"

#include <cstdint>
#include <cstring>

namespace lockstep::data {

void append_utf8(char32_t code_point, std::string& text) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto put_rest = [&](int shift) { put(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put_rest(0);
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put_rest(6);
    put_rest(0);
  } else {
    put(0xf0 | code_point >> 18);
    put_rest(12);
    put_rest(6);
    put_rest(0);
  }
}

std::size_t valid_utf8_prefix(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & kHighBits) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const Utf8Character character = decode_utf8(text.substr(at));
    if (character.bytes == 0) break;
    at += character.bytes;
  }
  return at;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    append_utf8(0xfffd, result);
    text.remove_prefix(1);
  }
  return result;
}

}  // namespace lockstep::data
