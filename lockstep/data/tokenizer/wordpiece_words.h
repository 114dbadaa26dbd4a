// BERT's words: white space is thrown away, each punctuation character is a word of its own.
#pragma once

#include <string_view>

#include "lockstep/data/unicode/unicode.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {

// `text` is UTF-8.
template <class Visit>
void for_each_bert_word(std::string_view text, Visit visit) {
  const CharacterClasses& classes = CharacterClasses::instance();
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t end) {
    if (end > begin) visit(text.substr(begin, end - begin));
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = decode_valid_utf8(text.data() + at);
    const std::uint8_t kind = classes[character.code_point] & (kSpace | kPunctuation);
    if (kind != 0) {
      end_word(at);
      begin = at + character.bytes;
      if (kind == kPunctuation) visit(text.substr(at, character.bytes));
    }
    at += character.bytes;
  }
  end_word(text.size());
}

}  // namespace lockstep::data
