// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::data {

struct Utf8Character {
  char32_t code_point = 0;
  std::size_t bytes = 0;  // 0: no UTF-8 begins here
};

inline bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

// The character at the front of `text`, which is not empty. Strict: nothing overlong, no
// surrogates, nothing above U+10FFFF.
inline Utf8Character decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xc2) return {};
  if (first < 0xe0) {
    if (text.size() < 2 || !continues(1)) return {};
    return {(first & 0x1f) << 6 | (byte(1) & 0x3fu), 2};
  }
  if (first < 0xf0) {
    if (text.size() < 3 || !continues(1) || !continues(2)) return {};
    const char32_t code_point = (first & 0x0f) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    if (code_point < 0x800 || (code_point >= 0xd800 && code_point < 0xe000)) return {};
    return {code_point, 3};
  }
  if (first > 0xf4 || text.size() < 4 || !continues(1) || !continues(2) || !continues(3)) return {};
  const char32_t code_point =
      (first & 0x07) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu);
  if (code_point < 0x10000 || code_point > 0x10ffff) return {};
  return {code_point, 4};
}

// The same of text that is known to be UTF-8; `at` is its first byte.
inline Utf8Character decode_valid_utf8(const char* at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(at[i]); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3fu), 2};
  if (first < 0xf0) {
    return {(first & 0x0f) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu), 3};
  }
  return {
      (first & 0x07) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu),
      4};
}

// `code_point` is one that UTF-8 has.
void append_utf8(char32_t code_point, std::string& text);

// How many bytes at the front of `text` are UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

// With U+FFFD for each byte that is no UTF-8.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace lockstep::data
