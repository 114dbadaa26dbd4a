#include "lockstep/data/unicode/unicode.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

#include "lockstep/data/unicode/tables.h"

namespace lockstep::data {
namespace {

constexpr char32_t kCodePoints = 0x110000;

// Syllables of Hangul decompose by arithmetic into 19 leading, 21 middle and 27 or no trailing
// ones.
constexpr char32_t kFirstSyllable = 0xac00;
constexpr char32_t kEndOfSyllables = 0xd7a4;
constexpr char32_t kFirstLeading = 0x1100;
constexpr char32_t kFirstVowel = 0x1161;
constexpr char32_t kBeforeTrailing = 0x11a7;
constexpr char32_t kVowels = 21;
constexpr char32_t kTrailing = 28;

bool is_syllable(char32_t code_point) {
  return code_point >= kFirstSyllable && code_point < kEndOfSyllables;
}

template <class Visit>
void for_each_in(std::span<const std::uint32_t> ranges, Visit visit) {
  char32_t at = 0;
  for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
    at += ranges[i];
    for (std::uint32_t count = ranges[i + 1]; count > 0; --count) visit(at++);
  }
}

class Mapping {
 public:
  explicit Mapping(std::span<const std::uint32_t> table) {
    char32_t at = 0;
    for (std::size_t i = 0; i < table.size(); i += 2 + table[i + 1]) {
      at += table[i];
      places_[at] = table.subspan(i + 2, table[i + 1]);
    }
  }

  const auto& places() const { return places_; }

  // Empty: it stays.
  std::span<const std::uint32_t> operator[](char32_t code_point) const {
    const auto place = places_.find(code_point);
    return place == places_.end() ? std::span<const std::uint32_t>() : place->second;
  }

 private:
  std::unordered_map<char32_t, std::span<const std::uint32_t>> places_;
};

const Mapping& lower_case() {
  static const Mapping kMapping(lower_case_mappings());
  return kMapping;
}

const Mapping& decomposition() {
  static const Mapping kMapping(decompositions());
  return kMapping;
}

int combining_class(char32_t code_point) {
  static const auto kClasses = [] {
    std::unordered_map<char32_t, int> classes;
    const std::span<const std::uint32_t> table = combining_classes();
    for (std::size_t i = 0; i < table.size(); i += 2 + 2 * std::size_t{table[i + 1]}) {
      for_each_in(table.subspan(i + 2, 2 * std::size_t{table[i + 1]}),
                  [&](char32_t point) { classes[point] = static_cast<int>(table[i]); });
    }
    return classes;
  }();
  const auto found = kClasses.find(code_point);
  return found == kClasses.end() ? 0 : found->second;
}

}  // namespace

CharacterClasses::CharacterClasses() {
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
  for (const auto& [point, to] : lower_case().places()) all[point] |= kHasLowerCase;
  for (const auto& [point, to] : decomposition().places()) all[point] |= kDecomposes;
  for (char32_t point = kFirstSyllable; point < kEndOfSyllables; ++point) all[point] |= kDecomposes;

  std::map<Block, std::uint16_t> known;
  for (std::size_t index = 0; index < blocks_at_.size(); ++index) {
    Block block;
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(index * block.size()), block.size(),
                block.begin());
    const auto [place, is_new] = known.emplace(block, static_cast<std::uint16_t>(blocks_.size()));
    if (is_new) blocks_.push_back(block);
    blocks_at_[index] = place->second;
  }
}

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

CodePoints decompose(const CodePoints& text) {
  const CharacterClasses& classes = CharacterClasses::instance();
  CodePoints result;
  result.reserve(text.size());
  for (const char32_t point : text) {
    if ((classes[point] & kDecomposes) == 0) {
      result.push_back(point);
    } else if (is_syllable(point)) {
      const char32_t index = point - kFirstSyllable;
      result.push_back(kFirstLeading + index / (kVowels * kTrailing));
      result.push_back(kFirstVowel + index / kTrailing % kVowels);
      if (index % kTrailing != 0) result.push_back(kBeforeTrailing + index % kTrailing);
    } else {
      const auto to = decomposition()[point];
      result.insert(result.end(), to.begin(), to.end());
    }
  }
  // Marks that follow a character are ordered by their classes.
  for (auto begin = result.begin(); begin != result.end();) {
    if (*begin < 0x300 || combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, result.end(),
                                  [](char32_t point) { return combining_class(point) == 0; });
    std::stable_sort(
        begin, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  return result;
}

}  // namespace lockstep::data
