#include "lockstep/data/unicode/normalization.h"

#include <algorithm>
#include <span>

#include "lockstep/data/unicode/table_readers.h"
#include "lockstep/data/unicode/tables.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

// Syllables of Hangul decompose by arithmetic into 19 leading, 21 middle and 27 or no trailing
// ones.
constexpr char32_t kFirstSyllable = 0xac00;
constexpr char32_t kEndOfSyllables = 0xd7a4;
constexpr char32_t kFirstLeading = 0x1100;
constexpr char32_t kFirstVowel = 0x1161;
constexpr char32_t kBeforeTrailing = 0x11a7;
constexpr char32_t kLeading = 19;
constexpr char32_t kVowels = 21;
constexpr char32_t kTrailing = 28;

bool is_syllable(char32_t point) { return point >= kFirstSyllable && point < kEndOfSyllables; }

// Of a code point: its combining class in the lower byte, and
enum : std::uint16_t {
  kCombiningClass = 0xff,
  kDecomposes = 0x100,                 // canonically
  kDecomposesByCompatibility = 0x200,  // otherwise than canonically
  kComposed = 0x400,                   // two characters become it
  kJoinsPrevious = 0x800,              // it may become one with a character before it
};

struct Data {
  Mapping canonical{decompositions()};
  Mapping compatibility{compatibility_decompositions()};
  std::span<const std::uint32_t> pairs = compositions();
  BlockTable<std::uint16_t> properties{all_properties()};

  static const Data& instance() {
    static const Data kData;
    return kData;
  }

  std::vector<std::uint16_t> all_properties() const {
    std::vector<std::uint16_t> all(kCodePoints);
    for_each_classed(combining_classes(), [&](char32_t point, std::uint32_t number) {
      all[point] = static_cast<std::uint16_t>(number);
    });
    for (const auto& [point, to] : canonical.places()) all[point] |= kDecomposes;
    for (const auto& [point, to] : compatibility.places()) all[point] |= kDecomposesByCompatibility;
    for (std::size_t i = 0; i < pairs.size(); i += 3) {
      all[pairs[i + 1]] |= kJoinsPrevious;
      all[pairs[i + 2]] |= kComposed;
    }
    for (char32_t point = kFirstSyllable; point < kEndOfSyllables; ++point) {
      all[point] |= kDecomposes | kComposed;
    }
    for (char32_t index = 0; index < kVowels; ++index) all[kFirstVowel + index] |= kJoinsPrevious;
    for (char32_t index = 1; index < kTrailing; ++index) {
      all[kBeforeTrailing + index] |= kJoinsPrevious;
    }
    return all;
  }

  int combining_class(char32_t point) const { return properties[point] & kCombiningClass; }
};

bool is_composed_form(NormalForm form) {
  return form == NormalForm::kNfc || form == NormalForm::kNfkc;
}
bool is_compatible_form(NormalForm form) {
  return form == NormalForm::kNfkc || form == NormalForm::kNfkd;
}

void append_decomposed(char32_t point, bool compatible, const Data& data, CodePoints& result) {
  const std::uint16_t properties = data.properties[point];
  if (compatible && (properties & kDecomposesByCompatibility) != 0) {
    const auto to = data.compatibility[point];
    result.insert(result.end(), to.begin(), to.end());
  } else if ((properties & kDecomposes) == 0) {
    result.push_back(point);
  } else if (is_syllable(point)) {
    const char32_t index = point - kFirstSyllable;
    result.push_back(kFirstLeading + index / (kVowels * kTrailing));
    result.push_back(kFirstVowel + index / kTrailing % kVowels);
    if (index % kTrailing != 0) result.push_back(kBeforeTrailing + index % kTrailing);
  } else {
    const auto to = data.canonical[point];
    result.insert(result.end(), to.begin(), to.end());
  }
}

// Marks that follow a character are ordered by their classes.
void order_marks(CodePoints& text, const Data& data) {
  for (auto begin = text.begin(); begin != text.end();) {
    if (data.combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text.end(),
                                  [&](char32_t point) { return data.combining_class(point) == 0; });
    std::stable_sort(begin, end, [&](char32_t a, char32_t b) {
      return data.combining_class(a) < data.combining_class(b);
    });
    begin = end;
  }
}

// What two characters become together; 0: they stay two.
char32_t composed(char32_t first, char32_t second, const Data& data) {
  if (first >= kFirstLeading && first < kFirstLeading + kLeading) {
    if (second < kFirstVowel || second >= kFirstVowel + kVowels) return 0;
    return kFirstSyllable +
           ((first - kFirstLeading) * kVowels + (second - kFirstVowel)) * kTrailing;
  }
  if (is_syllable(first) && (first - kFirstSyllable) % kTrailing == 0 && second > kBeforeTrailing &&
      second < kBeforeTrailing + kTrailing) {
    return first + (second - kBeforeTrailing);
  }
  std::size_t low = 0;
  std::size_t high = data.pairs.size() / 3;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const auto triple = data.pairs.subspan(3 * middle, 3);
    if (triple[0] == first && triple[1] == second) return triple[2];
    if (std::pair<char32_t, char32_t>(triple[0], triple[1]) < std::pair(first, second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 0;
}

// Joins characters with the last *starter* (a character of class 0) before them, unless a mark
// between them is of the same class or a higher one. `text` is decomposed and ordered.
void compose(CodePoints& text, const Data& data) {
  constexpr std::size_t kNoStarter = ~std::size_t{0};
  std::size_t starter = kNoStarter;
  std::size_t written = 0;
  int last_class = 0;
  for (const char32_t point : text) {
    const std::uint16_t properties = data.properties[point];
    const int own_class = properties & kCombiningClass;
    if (starter != kNoStarter && (properties & kJoinsPrevious) != 0 &&
        (starter + 1 == written || last_class < own_class)) {
      if (const char32_t joined = composed(text[starter], point, data)) {
        text[starter] = joined;
        continue;
      }
    }
    if (own_class == 0) starter = written;
    last_class = own_class;
    text[written++] = point;
  }
  text.resize(written);
}

// Whether it stays as it is whatever stands around it.
bool is_stable(std::uint16_t properties, NormalForm form) {
  std::uint16_t changing = kCombiningClass | kDecomposes;
  if (is_compatible_form(form)) changing |= kDecomposesByCompatibility;
  if (is_composed_form(form)) {
    changing |= kJoinsPrevious;
    if ((properties & kComposed) != 0) changing &= static_cast<std::uint16_t>(~kDecomposes);
  }
  return (properties & changing) == 0;
}

}  // namespace

CodePoints to_normal_form(const CodePoints& text, NormalForm form) {
  const Data& data = Data::instance();
  CodePoints result;
  result.reserve(text.size());
  for (const char32_t point : text) {
    append_decomposed(point, is_compatible_form(form), data, result);
  }
  order_marks(result, data);
  if (is_composed_form(form)) compose(result, data);
  return result;
}

// No mark is reordered across a character of ASCII, and none joins what stands before it: texts are
// cut in front of each.
void append_normal_form(std::string_view text, NormalForm form, std::string& result) {
  const Data& data = Data::instance();
  CodePoints run;
  while (!text.empty()) {
    std::size_t ascii = 0;
    while (ascii < text.size() && is_ascii(text[ascii])) ++ascii;
    if (ascii == text.size()) {
      result += text;
      return;
    }
    // The last one may join a mark behind it.
    const std::size_t alone = ascii > 0 ? ascii - 1 : 0;
    result += text.substr(0, alone);
    text.remove_prefix(alone);
    run.clear();
    bool stable = true;
    std::size_t bytes = 0;
    while (bytes < text.size() && (bytes == 0 || !is_ascii(text[bytes]))) {
      const Utf8Character character = decode_valid_utf8(text.data() + bytes);
      stable = stable && is_stable(data.properties[character.code_point], form);
      run.push_back(character.code_point);
      bytes += character.bytes;
    }
    if (stable) {
      result += text.substr(0, bytes);
    } else {
      for (const char32_t point : to_normal_form(run, form)) append_utf8(point, result);
    }
    text.remove_prefix(bytes);
  }
}

}  // namespace lockstep::data
