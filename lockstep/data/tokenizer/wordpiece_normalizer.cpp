#include "lockstep/data/tokenizer/wordpiece_normalizer.h"

#include <algorithm>

#include "lockstep/data/unicode/normalization.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// The blocks that BERT's authors chose, as Hugging Face has them (one begins at 2B920, not 2B820).
bool is_chinese(char32_t point) {
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
      {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks), [&](const auto& block) {
    return point >= block.first && point <= block.second;
  });
}

// Characters up to the next one of ASCII, which no mark can be reordered across.
CodePoints take_run(std::string_view& text) {
  CodePoints run;
  while (!text.empty() && !is_ascii(text.front())) {
    const Utf8Character character = decode_utf8(text);
    run.push_back(character.bytes == 0 ? kReplacement : character.code_point);
    text.remove_prefix(std::max<std::size_t>(1, character.bytes));
  }
  return run;
}

CodePoints cleaned(const CodePoints& text) {
  const CharacterClasses& classes = CharacterClasses::instance();
  CodePoints result;
  for (const char32_t point : text) {
    if (point == kReplacement || (classes[point] & kControl) != 0) continue;
    result.push_back((classes[point] & kSpace) != 0 ? U' ' : point);
  }
  return result;
}

CodePoints spaced(const CodePoints& text) {
  CodePoints result;
  for (const char32_t point : text) {
    if (is_chinese(point)) {
      result.insert(result.end(), {U' ', point, U' '});
    } else {
      result.push_back(point);
    }
  }
  return result;
}

}  // namespace

std::string BertNormalizer::operator()(std::string_view text) const {
  const CharacterClasses& classes = CharacterClasses::instance();
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    if (const char byte = text.front(); is_ascii(byte)) {
      text.remove_prefix(1);
      const std::uint8_t kind = classes[static_cast<unsigned char>(byte)];
      if (clean_text && (kind & (kControl | kSpace)) != 0) {
        if ((kind & kControl) == 0) result += ' ';
      } else if (lowercase && byte >= 'A' && byte <= 'Z') {
        result += static_cast<char>(byte + ('a' - 'A'));
      } else {
        result += byte;
      }
      continue;
    }
    CodePoints run = take_run(text);
    if (clean_text) run = cleaned(run);
    if (handle_chinese_chars) run = spaced(run);
    if (strip_accents) {
      run = to_normal_form(run, NormalForm::kNfd);
      std::erase_if(run, [&](char32_t point) { return (classes[point] & kNonspacingMark) != 0; });
    }
    if (lowercase) run = to_lower_case(run);
    for (const char32_t point : run) append_utf8(point, result);
  }
  return result;
}

}  // namespace lockstep::data
