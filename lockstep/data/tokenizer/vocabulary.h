// Tokens and their ids, as a file lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

// Lets maps of strings be asked without making one.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

class Vocabulary {
 public:
  Vocabulary() = default;
  // {"token": id, ...}. Rejects ids that are negative or given twice, and those that leave more
  // gaps than there are tokens: no tokenizer is like that, a damaged file is.
  explicit Vocabulary(const JsonPart& part);

  // Says how many more are to come, before they are added.
  void expect(std::size_t more_tokens);
  // Does nothing where the same token has the same id already; `place` is what errors call it.
  void add(std::string_view token, TokenId id, const JsonPart& place);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // gaps and all
  std::optional<TokenId> find(std::string_view token) const;
  // Nothing: no token has this id.
  const std::optional<std::string>& token(TokenId id) const {
    return tokens_[static_cast<std::size_t>(id)];
  }
  // The first of these that is a token.
  std::optional<TokenId> find_one_of(std::initializer_list<std::string_view> names) const;

 private:
  std::size_t expected_ = 0;
  std::vector<std::optional<std::string>> tokens_;
  std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>> ids_;
};

// The special token that goes by one of its usual names.
std::optional<TokenId> find_special(const Vocabulary& vocabulary, Special which);

}  // namespace lockstep::data
