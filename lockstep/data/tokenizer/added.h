// Added tokens: texts that are matched before normalization and splitting.
//
// Of those that begin at the same place the longest wins. Most are special ("<|endoftext|>").
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/normalizer.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizer/vocabulary.h"

namespace lockstep::data {

struct AddedToken {
  std::string text;  // what is looked for
  TokenId id = 0;
  bool takes_left = false;   // "lstrip": white space before it goes with it
  bool takes_right = false;  // "rstrip"
};

// A set of them, searched for in one pass.
class AddedTokenSet {
 public:
  AddedTokenSet() = default;
  explicit AddedTokenSet(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  // Calls for each stretch of the text in order: with the token, or nullptr for what lies between.
  void cut(
      std::string_view text,
      const std::function<void(std::string_view stretch, const AddedToken* token)>& visit) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;           // sorted by text
  std::array<std::size_t, 257> first_at_{};  // where those that begin with a byte begin
};

// The "added_tokens" of a file: those that are looked for in the text as it is, and those
// ("normalized") that are looked for when it has been normalized.
struct AddedTokens {
  AddedTokenSet raw;
  AddedTokenSet normalized;
  std::unordered_set<TokenId> ids;
  // Of those that are another text when normalized: they decode to that.
  std::unordered_map<TokenId, std::string> normalized_texts;

  bool has(TokenId id) const { return ids.contains(id); }

  // Adds them to the vocabulary too.
  static AddedTokens parse(const JsonPart& root, const Normalizer& normalizer,
                           Vocabulary& vocabulary);
  // For the stretches of a text between them `visit` gets the normalized text, and whether it
  // begins with what the text begins with; ids of the tokens go to `encoded`, which is as before
  // where `visit` throws.
  void encode(std::string_view text, const Normalizer& normalizer, std::vector<TokenId>& encoded,
              const std::function<void(std::string_view text, bool is_first)>& visit) const;
};

}  // namespace lockstep::data
