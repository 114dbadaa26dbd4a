// Tables about characters, written by tables.py and read by table_readers.h; unicode.h,
// normalization.h and graphemes.h are how they are asked.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::data {

// Alternating: how many code points are skipped, how many belong.
std::span<const std::uint32_t> letter_ranges();           // \p{L}
std::span<const std::uint32_t> number_ranges();           // \p{N}
std::span<const std::uint32_t> space_ranges();            // \s
std::span<const std::uint32_t> control_ranges();          // what BERT throws away
std::span<const std::uint32_t> punctuation_ranges();      // where BERT cuts
std::span<const std::uint32_t> nonspacing_mark_ranges();  // accents to BERT
std::span<const std::uint32_t> combining_mark_ranges();   // accents to StripAccents

// For each class but 0: its number, how many runs it has, and those as above.
std::span<const std::uint32_t> combining_classes();
std::span<const std::uint32_t> grapheme_classes();  // of graphemes.h

// For each character that is changed: the step from the one before, how many it becomes, and those.
std::span<const std::uint32_t> lower_case_mappings();
// In full; without Hangul syllables.
std::span<const std::uint32_t> decompositions();                // canonical
std::span<const std::uint32_t> compatibility_decompositions();  // where they differ from those

// Triples: two characters and the one that they become; without Hangul syllables. Rising.
std::span<const std::uint32_t> compositions();

}  // namespace lockstep::data
