#include "lockstep/data/tokenizer/white_space.h"

#include "lockstep/data/unicode/unicode.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

bool is_space(std::string_view text, const Utf8Character& character) {
  return character.bytes > 0 && !text.empty() &&
         (CharacterClasses::instance()[character.code_point] & kSpace) != 0;
}

}  // namespace

std::size_t front_space(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Utf8Character character = decode_utf8(text.substr(bytes));
    if (!is_space(text, character)) break;
    bytes += character.bytes;
  }
  return bytes;
}

std::size_t without_back_space(std::string_view text) {
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    const Utf8Character character = decode_utf8(text.substr(begin));
    if (character.bytes != text.size() - begin || !is_space(text, character)) break;
    text.remove_suffix(character.bytes);
  }
  return text.size();
}

}  // namespace lockstep::data
