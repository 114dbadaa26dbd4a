#include "lockstep/data/tokenizer/decoder.h"

#include <algorithm>

#include "lockstep/base/text/hex.h"
#include "lockstep/data/tokenizer/growth.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kMostStripped = 1 << 20;

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  const std::size_t from = text.size();
  while (true) {
    check_growth(result.size(), from);
    const std::size_t at = std::min(text.find(what), text.size());
    result += text.substr(0, at);
    if (at == text.size()) return result;
    result += with;
    text.remove_prefix(at + what.size());
  }
}

std::string byte_of(std::string_view token) {
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
    if (const auto byte = from_hex(token.substr(3, 2))) {
      return std::string(1, static_cast<char>(byte->front()));
    }
  }
  return std::string(token);
}

const JsonPart& as_character(const JsonPart& part) {
  const std::string_view text = part.text();
  if (text.empty() || decode_utf8(text).bytes != text.size()) {
    part.reject("a character was expected");
  }
  return part;
}

}  // namespace

TokenDecoder::TokenDecoder(const JsonPart& part) { add(part); }

void TokenDecoder::add_strip(const JsonPart& part) {
  const std::string content(as_character(part.at("content")).text());
  const auto start = static_cast<std::size_t>(part.at("start").whole(0, kMostStripped));
  const auto stop = static_cast<std::size_t>(part.at("stop").whole(0, kMostStripped));
  if (fused_) {
    if (content != " " || stop != 0) {
      part.unsupported("behind Fuse only blanks can be stripped, and only at the front");
    }
    stripped_blanks_ += start;
    return;
  }
  if (byte_fallback_) part.unsupported("Strip between ByteFallback and Fuse is not supported");
  steps_.emplace_back([content, start, stop](std::string_view token, bool /*is_first*/) {
    for (std::size_t i = 0; i < start && token.starts_with(content); ++i) {
      token.remove_prefix(content.size());
    }
    for (std::size_t i = 0; i < stop && token.ends_with(content); ++i) {
      token.remove_suffix(content.size());
    }
    return std::string(token);
  });
}

void TokenDecoder::add(const JsonPart& part) {
  const std::string_view type = part.at("type").text();
  if (type == "Sequence") {
    const JsonPart list = part.at("decoders");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (type == "Strip") {
    add_strip(part);
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (fused_) {
    part.unsupported("'{}' follows Fuse, behind which only Strip is supported", type);
  } else if (type == "Replace") {
    const JsonPart pattern = part.at("pattern");
    if (!pattern.has("String")) pattern.unsupported("a decoder can only replace a 'String'");
    const JsonPart what = pattern.at("String");
    if (what.text().empty()) what.reject("an empty text cannot be replaced");
    steps_.emplace_back(
        [what = std::string(what.text()), with = std::string(part.at("content").text())](
            std::string_view token, bool /*is_first*/) { return replaced(token, what, with); });
  } else if (type == "Metaspace") {
    const std::string what(as_character(part.at("replacement")).text());
    const bool add_prefix_space = part.flag_or("add_prefix_space", true);
    const bool drops_first =
        part.text_or("prepend_scheme", add_prefix_space ? "always" : "never") != "never";
    steps_.emplace_back([what, drops_first](std::string_view token, bool is_first) {
      return replaced(token, what, is_first && drops_first ? "" : " ");
    });
  } else if (type == "ByteFallback") {
    byte_fallback_ = true;
    steps_.emplace_back([](std::string_view token, bool /*is_first*/) { return byte_of(token); });
  } else {
    part.unsupported(
        "unknown decoder '{}' for tokens of characters; lockstep supports Replace, ByteFallback, "
        "Fuse, Strip, Metaspace and Sequence",
        type);
  }
}

std::string TokenDecoder::operator()(std::string_view token, bool is_first) const {
  std::string text(token);
  for (const Step& step : steps_) {
    text = step(text, is_first);
    check_growth(text.size(), token.size());
  }
  return text;
}

}  // namespace lockstep::data
