#include "lockstep/data/tokenizer/normalizer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "lockstep/data/tokenizer/charsmap.h"
#include "lockstep/data/tokenizer/growth.h"
#include "lockstep/data/tokenizer/pattern.h"
#include "lockstep/data/tokenizer/white_space.h"
#include "lockstep/data/tokenizer/wordpiece_normalizer.h"
#include "lockstep/data/unicode/normalization.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

// Calls `change` for stretches of UTF-8 and keeps all other bytes.
template <class Change>
std::string change_valid(std::string_view text, Change change) {
  std::string result;
  while (!text.empty()) {
    if (const std::size_t valid = valid_utf8_prefix(text); valid > 0) {
      change(text.substr(0, valid), result);
      text.remove_prefix(valid);
    } else {
      result += text.front();
      text.remove_prefix(1);
    }
  }
  return result;
}

std::string lower_case(std::string_view text) {
  return change_valid(text, [](std::string_view valid, std::string& result) {
    CodePoints points;
    for (std::size_t at = 0; at < valid.size();) {
      const Utf8Character character = decode_valid_utf8(valid.data() + at);
      points.push_back(character.code_point);
      at += character.bytes;
    }
    for (const char32_t point : to_lower_case(points)) append_utf8(point, result);
  });
}

std::string without_accents(std::string_view text) {
  const CharacterClasses& classes = CharacterClasses::instance();
  return change_valid(text, [&](std::string_view valid, std::string& result) {
    for (std::size_t at = 0; at < valid.size();) {
      const Utf8Character character = decode_valid_utf8(valid.data() + at);
      if ((classes[character.code_point] & kCombiningMark) == 0) {
        result += valid.substr(at, character.bytes);
      }
      at += character.bytes;
    }
  });
}

struct Match {
  std::size_t begin;
  std::size_t end;
};

// The matches in `text` become `with`.
void replace(const std::vector<Match>& matches, std::string_view with, NormalizedText& text) {
  if (matches.empty()) return;
  const std::size_t most = text.text.size() + matches.size() * with.size();
  check_growth(most, text.text.size());
  std::string result;
  result.reserve(most);
  const std::string_view old = text.text;
  std::size_t kept = 0;
  for (const Match& match : matches) {
    result += old.substr(kept, match.begin - kept);
    result += with;
    kept = match.end;
  }
  result += old.substr(kept);
  // What replaces several characters counts as coming from the last of them.
  const Match& first = matches.front();
  if (first.begin == 0 && first.end > 0) {
    const std::size_t bytes = std::max<std::size_t>(1, decode_utf8(old).bytes);
    if (with.empty() || first.end > bytes) text.from_begin = false;
  }
  text.text = std::move(result);
}

std::vector<Match> find_text(std::string_view what, std::string_view text) {
  std::vector<Match> matches;
  for (std::size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    matches.push_back({at, at + what.size()});
  }
  return matches;
}

std::vector<Match> find_pattern(const Pattern& pattern, std::string_view text) {
  std::vector<Match> matches;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view valid = text.substr(at, valid_utf8_prefix(text.substr(at)));
    if (!valid.empty()) {
      pattern.for_each_match(valid, [&](std::size_t begin, std::size_t end) {
        matches.push_back({at + begin, at + end});
      });
    }
    at += std::max<std::size_t>(1, valid.size());
  }
  return matches;
}

// A step of characters, which removes the first one of the text where it makes nothing of it.
template <class Change>
std::function<void(NormalizedText&)> step_of(Change change) {
  return [change](NormalizedText& text) {
    if (text.text.empty()) return;
    const std::size_t first = std::max<std::size_t>(1, decode_utf8(text.text).bytes);
    if (change(std::string_view(text.text).substr(0, first)).empty()) text.from_begin = false;
    text.text = change(text.text);
  };
}

std::optional<NormalForm> normal_form(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms{
      {{"NFC", NormalForm::kNfc},
       {"NFD", NormalForm::kNfd},
       {"NFKC", NormalForm::kNfkc},
       {"NFKD", NormalForm::kNfkd}}};
  const auto* found = std::find_if(kForms.begin(), kForms.end(),
                                   [&](const auto& form) { return form.first == type; });
  return found == kForms.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

Normalizer::Normalizer(const JsonPart& part) { add(part); }

NormalizedText Normalizer::operator()(std::string_view text) const {
  NormalizedText result{.text = std::string(text)};
  for (const Step& step : steps_) {
    step(result);
    check_growth(result.text.size(), text.size());
  }
  return result;
}

void Normalizer::add(const JsonPart& part) {
  const std::string_view type = part.at("type").text();
  if (type == "Sequence") {
    const JsonPart list = part.at("normalizers");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (const auto form = normal_form(type)) {
    steps_.emplace_back([form](NormalizedText& text) {
      text.text = change_valid(text.text, [&](std::string_view valid, std::string& result) {
        append_normal_form(valid, *form, result);
      });
    });
  } else if (type == "Lowercase") {
    steps_.emplace_back([](NormalizedText& text) { text.text = lower_case(text.text); });
  } else if (type == "StripAccents") {
    steps_.push_back(step_of(without_accents));
  } else if (type == "Strip") {
    const bool left = part.at("strip_left").flag();
    const bool right = part.at("strip_right").flag();
    steps_.emplace_back([left, right](NormalizedText& text) {
      if (right) text.text.resize(without_back_space(text.text));
      const std::size_t front = left ? front_space(text.text) : 0;
      if (front > 0) text.from_begin = false;
      text.text.erase(0, front);
    });
  } else if (type == "Prepend") {
    const std::string front(part.at("prepend").text());
    steps_.emplace_back([front](NormalizedText& text) {
      if (!text.text.empty()) text.text.insert(0, front);
    });
  } else if (type == "Replace") {
    const JsonPart pattern = part.at("pattern");
    const std::string with(part.at("content").text());
    if (pattern.has("String")) {
      const std::string what(pattern.at("String").text());
      if (what.empty()) pattern.reject("an empty text cannot be replaced");
      steps_.emplace_back(
          [what, with](NormalizedText& text) { replace(find_text(what, text.text), with, text); });
    } else {
      const JsonPart expression = pattern.at("Regex");
      const Pattern compiled(expression.text(), expression.place());
      steps_.emplace_back([compiled, with](NormalizedText& text) {
        replace(find_pattern(compiled, text.text), with, text);
      });
    }
  } else if (type == "Precompiled") {
    const auto charsmap = std::make_shared<const Charsmap>(part.at("precompiled_charsmap"));
    steps_.emplace_back([charsmap](NormalizedText& text) {
      text.text = change_valid(text.text, [&](std::string_view valid, std::string& result) {
        charsmap->append_replaced(valid, result);
      });
    });
  } else if (type == "BertNormalizer") {
    const bool lowercase = part.flag_or("lowercase", true);
    steps_.push_back(
        step_of(BertNormalizer{.clean_text = part.flag_or("clean_text", true),
                               .handle_chinese_chars = part.flag_or("handle_chinese_chars", true),
                               .strip_accents = part.flag_or("strip_accents", lowercase),
                               .lowercase = lowercase}));
  } else {
    part.unsupported(
        "unknown normalizer '{}'; lockstep supports NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
        "Strip, Prepend, Replace, Precompiled, BertNormalizer and Sequence",
        type);
  }
}

}  // namespace lockstep::data
