// What ids decode to.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/added.h"
#include "lockstep/data/tokenizer/decoder.h"
#include "lockstep/data/tokenizer/vocabulary.h"

namespace lockstep::data {

class TokenTexts {
 public:
  TokenTexts() = default;
  // Of tokens of characters: added ones go through the decoder, too.
  TokenTexts(const Vocabulary& vocabulary, const AddedTokens& added, const TokenDecoder& decoder);
  // Each token's text is decode(token, id).
  TokenTexts(const Vocabulary& vocabulary,
             const std::function<std::string(const std::string& token, TokenId id)>& decode);

  // The ids are those of tokens.
  void append(std::span<const TokenId> ids, std::string& text) const;

 private:
  std::vector<std::string> texts_;        // of each id
  std::vector<std::string> first_texts_;  // of the first id of all; empty: no other than texts_
  std::size_t stripped_blanks_ = 0;       // of the front of what is decoded
};

}  // namespace lockstep::data
