#include "lockstep/data/tokenizer/decoder.h"

#include "lockstep/base/text/hex.h"

namespace lockstep::data {

TokenDecoder::TokenDecoder(const JsonPart& part) { add(part); }

void TokenDecoder::add(const JsonPart& part) {
  const std::string_view type = part.at("type").text();
  if (type == "Sequence") {
    const JsonPart list = part.at("decoders");
    for (std::size_t i = 0; i < list.size(); ++i) add(list.at(i));
  } else if (type == "Replace") {
    const JsonPart pattern = part.at("pattern");
    if (!pattern.has("String")) pattern.unsupported("a decoder can only replace a 'String'");
    const JsonPart what = pattern.at("String");
    if (what.text().empty()) what.reject("an empty text cannot be replaced");
    replaced_.emplace_back(what.text(), part.at("content").text());
  } else if (type == "Metaspace") {
    const JsonPart replacement = part.at("replacement");
    if (replacement.text().empty()) replacement.reject("a character was expected");
    replaced_.emplace_back(replacement.text(), " ");
    const bool add_prefix_space = part.flag_or("add_prefix_space", true);
    const std::string_view scheme =
        part.text_or("prepend_scheme", add_prefix_space ? "always" : "never");
    stripped_blanks_ += scheme == "never" ? 0 : 1;
  } else if (type == "ByteFallback") {
    byte_fallback_ = true;
  } else if (type == "Strip") {
    if (part.at("content").text() != " " || part.at("stop").whole(0, INT64_MAX) != 0) {
      part.unsupported("a decoder can only strip blanks, and only at the front");
    }
    stripped_blanks_ += static_cast<std::size_t>(part.at("start").whole(0, 1 << 20));
  } else if (type != "Fuse") {
    part.unsupported(
        "unknown decoder '{}' for tokens of characters; lockstep supports Replace, ByteFallback, "
        "Fuse, Strip, Metaspace and Sequence",
        type);
  }
}

std::string TokenDecoder::operator()(std::string_view token) const {
  if (byte_fallback_ && token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
    if (const auto byte = from_hex(token.substr(3, 2))) {
      return std::string(1, static_cast<char>(byte->front()));
    }
  }
  std::string text(token);
  for (const auto& [what, with] : replaced_) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + with.size())) {
      text.replace(at, what.size(), with);
    }
  }
  return text;
}

}  // namespace lockstep::data
