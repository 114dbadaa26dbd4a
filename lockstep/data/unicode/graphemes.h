// Extended grapheme clusters (UAX #29): what a reader takes for one character, like a letter with
// its accents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::data {

// Numbered as in tables.py.
enum class GraphemeClass : std::uint8_t {
  kOther,
  kCarriageReturn,
  kLineFeed,
  kControl,
  kExtend,
  kZeroWidthJoiner,
  kRegionalIndicator,
  kPrepend,
  kSpacingMark,
  kLeading,  // Hangul
  kVowel,
  kTrailing,
  kLeadingVowel,
  kLeadingVowelTrailing,
  kPictographic,
  kConsonant,       // of scripts that join consonants by a linker
  kLinker,          // they extend, too
  kConjunctExtend,  // extends, and may stand between consonant and linker
};

// Bytes of the cluster at the front of `text`, which is UTF-8 and not empty.
std::size_t grapheme_bytes(std::string_view text);

}  // namespace lockstep::data
