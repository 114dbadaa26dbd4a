// The famous patterns of words, written out: many times faster than a regular expression.
//
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//           ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+        (on one line)
//   qwen2   as llama3, with \p{N} instead of \p{N}{1,3}
//
// A test holds them against the same patterns run by Pattern.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "lockstep/data/unicode/unicode.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {

enum class WordRule : std::uint8_t { kGpt2, kLlama3, kQwen2 };

std::string_view pattern_of(WordRule rule);
// The rule that cuts as this pattern does, if there is one.
std::optional<WordRule> rule_of(std::string_view pattern);

// Finds one word after the other in a text that is UTF-8.
template <WordRule rule>
class WordScanner {
 public:
  explicit WordScanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  // Calls visit(std::string_view) for each; together they are the text.
  template <class Visit>
  void for_each(Visit visit) {
    while (at_ != end_) {
      const char* const begin = at_;
      if constexpr (rule == WordRule::kGpt2) {
        take_gpt2();
      } else {
        take_llama3();
      }
      visit(std::string_view(begin, static_cast<std::size_t>(at_ - begin)));
    }
  }

 private:
  // The character classes of the patterns; kOther is [^\s\p{L}\p{N}].
  static constexpr std::uint8_t kOther = 0;
  static constexpr std::uint8_t kTold = kLetter | kNumber | kSpace;

  struct Character {
    std::uint8_t kind;
    std::size_t bytes;
  };
  Character at(const char* place) const {
    const Utf8Character character = decode_valid_utf8(place);
    return {static_cast<std::uint8_t>(classes_[character.code_point] & kTold), character.bytes};
  }
  void take_while(std::uint8_t kind) {
    while (at_ != end_) {
      const Character next = at(at_);
      if (next.kind != kind) return;
      at_ += next.bytes;
    }
  }

  // Bytes of the contraction that begins with the apostrophe at at_; 0: none.
  std::size_t contraction() const {
    constexpr bool kAnyCase = rule != WordRule::kGpt2;
    const auto letter = [&](std::size_t index) {
      if (static_cast<std::size_t>(end_ - at_) <= index) return '\0';
      const char byte = at_[index];
      return kAnyCase && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + ('a' - 'A')) : byte;
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? 3 : 0;
      case 'l':
        return letter(2) == 'l' ? 3 : 0;
      case '\xc5':  // U+017F, the long s, is an s in another case
        return kAnyCase && letter(2) == '\xbf' ? 3 : 0;
      default:
        return 0;
    }
  }

  // \s+(?!\S)|\s+ : white space up to its last character, which goes with what follows it; all of
  // it at the end of the text, and where it is only one.
  void take_space(const char* last, const char* space_end) {
    at_ = space_end == end_ || last == at_ ? space_end : last;
  }

  void take_gpt2() {
    if (*at_ == '\'') {
      if (const std::size_t bytes = contraction(); bytes > 0) {
        at_ += bytes;
        return;
      }
    }
    Character first = at(at_);
    if (first.kind == kSpace) {
      if (*at_ == ' ' && at_ + 1 != end_) {
        if (const Character second = at(at_ + 1); second.kind != kSpace) {
          at_ += 1 + second.bytes;
          take_while(second.kind);
          return;
        }
      }
      const char* const begin = at_;
      const char* last = at_;
      while (at_ != end_) {
        const Character next = at(at_);
        if (next.kind != kSpace) break;
        last = at_;
        at_ += next.bytes;
      }
      const char* const space_end = at_;
      at_ = begin;
      take_space(last, space_end);
      return;
    }
    at_ += first.bytes;
    take_while(first.kind);
  }

  void take_llama3() {
    if (*at_ == '\'') {
      if (const std::size_t bytes = contraction(); bytes > 0) {
        at_ += bytes;
        return;
      }
    }
    const Character first = at(at_);
    if (first.kind == kLetter) {
      at_ += first.bytes;
      take_while(kLetter);
      return;
    }
    if (first.kind == kNumber) {
      constexpr int kMostDigits = rule == WordRule::kQwen2 ? 1 : 3;
      at_ += first.bytes;
      for (int digits = 1; digits < kMostDigits && at_ != end_; ++digits) {
        const Character next = at(at_);
        if (next.kind != kNumber) return;
        at_ += next.bytes;
      }
      return;
    }
    const char* const second_at = at_ + first.bytes;
    const std::uint8_t second = second_at == end_ ? std::uint8_t{kSpace} : at(second_at).kind;
    if (second == kLetter && *at_ != '\r' && *at_ != '\n') {
      at_ = second_at;
      take_while(kLetter);
      return;
    }
    if (first.kind == kOther || (*at_ == ' ' && second == kOther)) {
      at_ = second_at;
      take_while(kOther);
      while (at_ != end_ && (*at_ == '\r' || *at_ == '\n')) ++at_;
      return;
    }
    take_llama3_space();
  }

  void take_llama3_space() {
    const char* const begin = at_;
    const char* last = at_;
    const char* after_line = nullptr;  // behind the last \r or \n
    while (at_ != end_) {
      const Character next = at(at_);
      if (next.kind != kSpace) break;
      last = at_;
      if (*at_ == '\r' || *at_ == '\n') after_line = at_ + 1;
      at_ += next.bytes;
    }
    if (after_line != nullptr) {
      at_ = after_line;
      return;
    }
    const char* const space_end = at_;
    at_ = begin;
    take_space(last, space_end);
  }

  const CharacterClasses& classes_ = CharacterClasses::instance();
  const char* at_;
  const char* end_;
};

template <class Visit>
void for_each_word(WordRule rule, std::string_view text, Visit visit) {
  switch (rule) {
    case WordRule::kGpt2:
      return WordScanner<WordRule::kGpt2>(text).for_each(visit);
    case WordRule::kLlama3:
      return WordScanner<WordRule::kLlama3>(text).for_each(visit);
    case WordRule::kQwen2:
      return WordScanner<WordRule::kQwen2>(text).for_each(visit);
  }
}

}  // namespace lockstep::data
