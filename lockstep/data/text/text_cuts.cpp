// Which tokenizers end a word at every line break, or at every blank, that stands alone
// (text_pieces.h).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/data/text/text_pieces.h"
#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/normalizer.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

// The patterns of Llama 3 and of those that took it over with other groups of digits.
constexpr std::string_view kLlama3Patterns[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

bool has_value(const json& part, const char* key, const json& wanted) {
  return part.is_object() && part.contains(key) && part[key] == wanted;
}

bool is_byte_level(const json& part, bool uses_pattern) {
  return has_value(part, "type", "ByteLevel") && has_value(part, "add_prefix_space", false) &&
         has_value(part, "use_regex", false) != uses_pattern;
}

bool is_llama3_split(const json& part) {
  if (!has_value(part, "type", "Split") || !has_value(part, "behavior", "Isolated") ||
      !has_value(part, "invert", false) || !part.contains("pattern")) {
    return false;
  }
  return std::any_of(
      std::begin(kLlama3Patterns), std::end(kLlama3Patterns),
      [&](std::string_view pattern) { return has_value(part["pattern"], "Regex", pattern); });
}

bool splits_words_at_lines(const json& pre_tokenizer) {
  if (is_byte_level(pre_tokenizer, true)) return true;
  if (has_value(pre_tokenizer, "type", "BertPreTokenizer")) return true;
  if (!has_value(pre_tokenizer, "type", "Sequence")) return false;
  const json steps = pre_tokenizer.value("pretokenizers", json());
  return steps.is_array() && steps.size() == 2 && is_llama3_split(steps[0]) &&
         is_byte_level(steps[1], false);
}

// A blank becomes the mark that begins a word, and a text that begins with one gets no other.
bool splits_words_at_blanks(const json& pre_tokenizer) {
  return has_value(pre_tokenizer, "type", "Metaspace") &&
         !has_value(pre_tokenizer, "split", false) &&
         has_value(pre_tokenizer, "prepend_scheme", "always");
}

// Normal forms, accents and case know no line breaks and no blanks.
bool keeps_separators(const json& normalizer) {
  if (normalizer.is_null()) return true;
  const std::string type = normalizer.is_object() ? normalizer.value("type", "") : "";
  constexpr std::string_view kHarmless[] = {"NFC",  "NFD",       "NFKC",
                                            "NFKD", "Lowercase", "StripAccents"};
  return std::find(std::begin(kHarmless), std::end(kHarmless), type) != std::end(kHarmless);
}

bool keeps_lines(const json& normalizer) {
  return keeps_separators(normalizer) || has_value(normalizer, "type", "BertNormalizer");
}

// Whether SentencePiece's table leaves blanks alone and makes none of what may stand beside them.
bool keeps_blanks_apart(const json& precompiled) {
  const json file{{"normalizer", precompiled}};
  const Normalizer normalizer(JsonFile(file.dump(), "normalizer").root().at("normalizer"));
  for (char letter = '!'; letter <= '~'; ++letter) {
    const std::string made = normalizer(std::string(1, letter)).text;
    if (made.empty() || made.find(' ') != std::string::npos) return false;
  }
  return normalizer(" a").text == " " + normalizer("a").text;
}

// What is done to single characters, to clusters of them, and to white space at the end of a text
// or of at least two characters, does nothing to a blank that stands alone between characters of
// ASCII.
bool keeps_blanks(const json& normalizer) {
  if (keeps_separators(normalizer)) return true;
  if (has_value(normalizer, "type", "Sequence")) {
    const json steps = normalizer.value("normalizers", json());
    return steps.is_array() && std::all_of(steps.begin(), steps.end(), keeps_blanks);
  }
  if (has_value(normalizer, "type", "Strip")) return has_value(normalizer, "strip_left", false);
  if (has_value(normalizer, "type", "Precompiled")) return keeps_blanks_apart(normalizer);
  return has_value(normalizer, "type", "Replace") &&
         has_value(normalizer, "pattern", json{{"Regex", " {2,}"}});
}

// A token that is found in the text as a whole must not lie across a cut, nor take the white space
// beside the cut along: that before it, where it can begin behind the cut, and that behind it.
bool may_lie_across(const json& token, TextCut cut) {
  if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) {
    return true;
  }
  const std::string content = token["content"];
  const bool is_raw = has_value(token, "normalized", false);
  const bool begins_behind = !is_raw || content.empty() || is_ascii_word(content.front());
  if (has_value(token, "lstrip", true) && begins_behind) return true;
  if (cut == TextCut::kBehindLines) return content.find('\n') != std::string::npos;
  return content.find(' ') != std::string::npos || has_value(token, "rstrip", true) || !is_raw;
}

}  // namespace

TextCut text_cut(const Tokenizer& tokenizer) {
  if (tokenizer.kind() == "byte" || tokenizer.kind() == "character") return TextCut::kBehindLines;
  const json root = json::parse(tokenizer.json(), nullptr, false);
  if (!root.is_object()) return TextCut::kNowhere;
  const json pre_tokenizer = root.value("pre_tokenizer", json());
  const json normalizer = root.value("normalizer", json());
  TextCut cut = TextCut::kNowhere;
  if (splits_words_at_lines(pre_tokenizer) && keeps_lines(normalizer)) {
    cut = TextCut::kBehindLines;
  } else if (splits_words_at_blanks(pre_tokenizer) && keeps_blanks(normalizer)) {
    cut = TextCut::kBeforeBlanks;
  }
  const json added = root.value("added_tokens", json::array());
  const bool is_safe = added.is_array() &&
                       std::none_of(added.begin(), added.end(),
                                    [&](const json& token) { return may_lie_across(token, cut); });
  return is_safe ? cut : TextCut::kNowhere;
}

}  // namespace lockstep::data
