#include "lockstep/data/tokenizers/bpe_bytes.h"

#include <array>

#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr char32_t kFirstForInvisible = 0x100;
constexpr std::size_t kInvisible = 68;

struct Alphabet {
  std::array<char32_t, 256> visible{};
  std::array<unsigned char, kInvisible> hidden{};  // the bytes behind U+0100 and up
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  std::size_t hidden = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    if (visible) {
      alphabet.visible[byte] = static_cast<char32_t>(byte);
    } else {
      alphabet.visible[byte] = kFirstForInvisible + static_cast<char32_t>(hidden);
      alphabet.hidden[hidden++] = static_cast<unsigned char>(byte);
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t visible_of(unsigned char byte) { return kAlphabet.visible[byte]; }

std::string to_visible(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(visible_of(static_cast<unsigned char>(byte)), text);
  return text;
}

std::optional<std::string> from_visible(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Character character = decode_utf8(text);
    const char32_t point = character.code_point;
    if (character.bytes == 0) return std::nullopt;
    if (point >= kFirstForInvisible && point < kFirstForInvisible + kInvisible) {
      bytes += static_cast<char>(kAlphabet.hidden[point - kFirstForInvisible]);
    } else if (point < kFirstForInvisible && kAlphabet.visible[point] == point) {
      bytes += static_cast<char>(point);
    } else {
      return std::nullopt;
    }
    text.remove_prefix(character.bytes);
  }
  return bytes;
}

}  // namespace lockstep::data
