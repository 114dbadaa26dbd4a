#include "lockstep/data/tokenizer/normalizer.h"

#include "lockstep/data/tokenizer/pattern.h"
#include "lockstep/data/tokenizer/wordpiece_normalizer.h"
#include "lockstep/data/unicode/unicode.h"
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

std::string change_points(std::string_view text, CodePoints (*change)(const CodePoints&)) {
  return change_valid(text, [&](std::string_view valid, std::string& result) {
    CodePoints points;
    while (!valid.empty()) {
      const Utf8Character character = decode_valid_utf8(valid.data());
      points.push_back(character.code_point);
      valid.remove_prefix(character.bytes);
    }
    for (const char32_t point : change(points)) append_utf8(point, result);
  });
}

std::string replace_matches(const Pattern& pattern, std::string_view with, std::string_view text) {
  return change_valid(text, [&](std::string_view valid, std::string& result) {
    std::size_t kept = 0;
    pattern.for_each_match(valid, [&](std::size_t begin, std::size_t end) {
      result += valid.substr(kept, begin - kept);
      result += with;
      kept = end;
    });
    result += valid.substr(kept);
  });
}

std::string replace_text(std::string_view what, std::string_view with, std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  while (true) {
    const std::size_t at = text.find(what);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += with;
    text.remove_prefix(at + what.size());
  }
}

}  // namespace

Normalizer::Normalizer(const JsonPart& part) { add(part); }

std::string Normalizer::operator()(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) result = step(std::move(result));
  return result;
}

void Normalizer::add(const JsonPart& part) {
  const std::string_view type = part.at("type").text();
  if (type == "Sequence") {
    const JsonPart list = part.at("normalizers");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (type == "Prepend") {
    const std::string front(part.at("prepend").text());
    steps_.emplace_back([front](std::string text) { return text.empty() ? text : front + text; });
  } else if (type == "Replace") {
    const JsonPart pattern = part.at("pattern");
    const std::string with(part.at("content").text());
    if (pattern.has("String")) {
      const std::string what(pattern.at("String").text());
      if (what.empty()) pattern.reject("an empty text cannot be replaced");
      steps_.emplace_back(
          [what, with](const std::string& text) { return replace_text(what, with, text); });
    } else {
      const JsonPart expression = pattern.at("Regex");
      const Pattern compiled(expression.text(), expression.place());
      steps_.emplace_back([compiled, with](const std::string& text) {
        return replace_matches(compiled, with, text);
      });
    }
  } else if (type == "Lowercase") {
    steps_.emplace_back([](const std::string& text) { return change_points(text, to_lower_case); });
  } else if (type == "NFD") {
    steps_.emplace_back([](const std::string& text) { return change_points(text, decompose); });
  } else if (type == "BertNormalizer") {
    const bool lowercase = part.flag_or("lowercase", true);
    steps_.emplace_back(
        BertNormalizer{.clean_text = part.flag_or("clean_text", true),
                       .handle_chinese_chars = part.flag_or("handle_chinese_chars", true),
                       .strip_accents = part.flag_or("strip_accents", lowercase),
                       .lowercase = lowercase});
  } else {
    part.unsupported(
        "unknown normalizer '{}'; lockstep supports Prepend, Replace, Lowercase, NFD, "
        "BertNormalizer and Sequence",
        type);
  }
}

}  // namespace lockstep::data
