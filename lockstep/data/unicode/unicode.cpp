#include "lockstep/data/unicode/unicode.h"

#include "lockstep/data/unicode/table_readers.h"
#include "lockstep/data/unicode/tables.h"

namespace lockstep::data {
namespace {

const Mapping& lower_case() {
  static const Mapping kMapping(lower_case_mappings());
  return kMapping;
}

std::vector<std::uint8_t> all_classes() {
  std::vector<std::uint8_t> all(kCodePoints);
  const auto mark = [&](std::span<const std::uint32_t> ranges, CharacterClass which) {
    for_each_in(ranges, [&](char32_t point) { all[point] |= which; });
  };
  mark(letter_ranges(), kLetter);
  mark(number_ranges(), kNumber);
  mark(space_ranges(), kSpace);
  mark(control_ranges(), kControl);
  mark(punctuation_ranges(), kPunctuation);
  mark(nonspacing_mark_ranges(), kNonspacingMark);
  mark(combining_mark_ranges(), kCombiningMark);
  for (const auto& [point, to] : lower_case().places()) all[point] |= kHasLowerCase;
  return all;
}

}  // namespace

CharacterClasses::CharacterClasses() : table_(all_classes()) {}

const CharacterClasses& CharacterClasses::instance() {
  static const CharacterClasses kClasses;
  return kClasses;
}

CodePoints to_lower_case(const CodePoints& text) {
  const CharacterClasses& classes = CharacterClasses::instance();
  CodePoints result;
  result.reserve(text.size());
  for (const char32_t point : text) {
    if ((classes[point] & kHasLowerCase) == 0) {
      result.push_back(point);
    } else {
      const auto to = lower_case()[point];
      result.insert(result.end(), to.begin(), to.end());
    }
  }
  return result;
}

}  // namespace lockstep::data
