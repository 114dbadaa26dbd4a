// What kind of character a code point is, and what it becomes without case and accents.
//
// As Hugging Face's tokenizers have it, with the versions of Unicode that they have it from
// (tables.py).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::data {

enum CharacterClass : std::uint8_t {
  kLetter = 1,           // \p{L}
  kNumber = 2,           // \p{N}
  kSpace = 4,            // \s
  kControl = 8,          // what BERT throws away: controls, formats, unassigned, private use
  kPunctuation = 16,     // BERT's: that of Unicode, and all signs of ASCII
  kNonspacingMark = 32,  // accents
  kHasLowerCase = 64,    // it is another character in lower case
  kDecomposes = 128,     // it is several, or another, when decomposed
};

class CharacterClasses {
 public:
  static const CharacterClasses& instance();  // made on first use

  // Of any code point up to U+10FFFF: CharacterClass, or-ed.
  std::uint8_t operator[](char32_t code_point) const {
    return blocks_[blocks_at_[code_point >> 8]][code_point & 0xff];
  }

 private:
  CharacterClasses();

  using Block = std::array<std::uint8_t, 256>;
  std::array<std::uint16_t, 0x1100> blocks_at_{};
  std::vector<Block> blocks_;  // those that differ
};

using CodePoints = std::vector<char32_t>;

// Character by character, whatever stands around them.
CodePoints to_lower_case(const CodePoints& text);
// Canonical decomposition (NFD), with marks in their canonical order.
CodePoints decompose(const CodePoints& text);

}  // namespace lockstep::data
