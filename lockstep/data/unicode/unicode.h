// What kind of character a code point is, and what it is in lower case.
//
// As Hugging Face's tokenizers have it, with the versions of Unicode that they have it from
// (tables.py).
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/unicode/block_table.h"

namespace lockstep::data {

enum CharacterClass : std::uint8_t {
  kLetter = 1,           // \p{L}
  kNumber = 2,           // \p{N}
  kSpace = 4,            // \s
  kControl = 8,          // what BERT throws away: controls, formats, unassigned, private use
  kPunctuation = 16,     // BERT's: that of Unicode, and all signs of ASCII
  kNonspacingMark = 32,  // accents to BERT
  kHasLowerCase = 64,    // it is another character in lower case
  kCombiningMark = 128,  // accents to StripAccents
};

class CharacterClasses {
 public:
  static const CharacterClasses& instance();  // made on first use

  // Of any code point up to U+10FFFF: CharacterClass, or-ed.
  std::uint8_t operator[](char32_t code_point) const { return table_[code_point]; }

 private:
  CharacterClasses();

  BlockTable<std::uint8_t> table_;
};

using CodePoints = std::vector<char32_t>;

// Character by character, whatever stands around them.
CodePoints to_lower_case(const CodePoints& text);

}  // namespace lockstep::data
