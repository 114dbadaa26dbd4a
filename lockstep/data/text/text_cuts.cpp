// Which tokenizers end a word at every line break that stands alone (text_pieces.h).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/data/text/text_pieces.h"

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
         (uses_pattern ? part.value("use_regex", true) : has_value(part, "use_regex", false));
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

// Normal forms, accents and case know no line breaks; other normalisers may do anything.
bool keeps_lines(const json& normalizer) {
  if (normalizer.is_null()) return true;
  const std::string type = normalizer.is_object() ? normalizer.value("type", "") : "";
  constexpr std::string_view kHarmless[] = {"NFC",       "NFD",          "NFKC",          "NFKD",
                                            "Lowercase", "StripAccents", "BertNormalizer"};
  return std::find(std::begin(kHarmless), std::end(kHarmless), type) != std::end(kHarmless);
}

// A token that is found in the text as a whole must not lie across a cut, nor take the white space
// before it along.
bool may_lie_across(const json& token) {
  if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) {
    return true;
  }
  return token["content"].get<std::string>().find('\n') != std::string::npos ||
         has_value(token, "lstrip", true);
}

}  // namespace

bool cuts_words_at_lines(const Tokenizer& tokenizer) {
  if (tokenizer.kind() == "byte" || tokenizer.kind() == "character") return true;
  const json root = json::parse(tokenizer.json(), nullptr, false);
  if (!root.is_object() || !splits_words_at_lines(root.value("pre_tokenizer", json())) ||
      !keeps_lines(root.value("normalizer", json()))) {
    return false;
  }
  const json added = root.value("added_tokens", json::array());
  return added.is_array() && std::none_of(added.begin(), added.end(), may_lie_across);
}

}  // namespace lockstep::data
