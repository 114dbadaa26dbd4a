// A tokenizer with one id for each character of a text.
#pragma once

#include <unordered_map>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

// A character is a code point, or kFirstLoneByte + the byte for a byte that is not UTF-8.
class CharacterTokenizer : public Tokenizer {
 public:
  static constexpr char32_t kFirstLoneByte = 0x110000;
  static constexpr char32_t kEnd = kFirstLoneByte + 256;

  // Takes the characters in ascending order, each once.
  explicit CharacterTokenizer(std::vector<char32_t> characters);

  std::string_view kind() const override { return "character"; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(texts_.size()); }
  std::optional<TokenId> special(Special /*which*/) const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  void decode(std::span<const TokenId> ids, std::string& text) const override;
  std::string json() const override;
  std::string hugging_face_json() const override;

 private:
  std::vector<char32_t> characters_;
  std::vector<std::string> texts_;  // of each id
  std::vector<TokenId> ascii_;      // id, or -1
  std::unordered_map<char32_t, TokenId> non_ascii_;
};

// Reads what json() wrote.
std::unique_ptr<Tokenizer> parse_character_tokenizer(const JsonPart& root);

}  // namespace lockstep::data
