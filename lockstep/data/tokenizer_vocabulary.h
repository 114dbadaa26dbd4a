// Tokens and their ids, as a file lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/data/tokenizer.h"
#include "lockstep/data/tokenizer_json.h"

namespace lockstep::data {

class Vocabulary {
 public:
  Vocabulary() = default;
  // {"token": id, ...}. Rejects ids that are negative, huge or given twice.
  explicit Vocabulary(const JsonPart& part);

  // Does nothing where the same token has the same id already; `place` is what errors call it.
  void add(std::string_view token, TokenId id, const JsonPart& place);
  // Rejects a list with more gaps than tokens: no tokenizer is like that, a damaged file is.
  void check_gaps(const JsonPart& place) const;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // gaps and all
  std::optional<TokenId> find(std::string_view token) const;
  // Nothing: no token has this id.
  const std::optional<std::string>& token(TokenId id) const {
    return tokens_[static_cast<std::size_t>(id)];
  }
  // The first of these that is a token.
  std::optional<TokenId> find_one_of(std::initializer_list<std::string_view> names) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::vector<std::optional<std::string>> tokens_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

// The special token that goes by one of its usual names.
std::optional<TokenId> find_special(const Vocabulary& vocabulary, Special which);

}  // namespace lockstep::data
