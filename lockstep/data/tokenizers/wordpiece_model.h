// The model of a WordPiece tokenizer: cuts a word, from the front, into the longest known tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/vocabulary.h"
#include "lockstep/data/tokenizers/bpe_pair_map.h"

namespace lockstep::data {

class WordPieceModel {
 public:
  // Takes the "model" of a tokenizer.json; its "vocab" is already read.
  WordPieceModel(const JsonPart& part, const Vocabulary& vocabulary);

  TokenId unknown() const { return unknown_; }
  const std::string& prefix() const { return prefix_; }  // of tokens inside of a word: "##"

  // Replaces ids with those of a word, which is UTF-8. A word that cannot be cut into tokens, or
  // that is too long, is unknown.
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  // Tokens are two trees of bytes: tokens that begin a word and tokens that continue one.
  static constexpr std::uint32_t kBegins = 0;
  static constexpr std::uint32_t kGoesOn = 1;
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  void insert(std::uint32_t root, std::string_view token, TokenId id);

  TokenId unknown_ = 0;
  std::string prefix_;
  std::size_t most_characters_;
  PairMap<std::uint32_t> edges_;
  std::vector<TokenId> tokens_;  // of each node; -1: none ends there
};

}  // namespace lockstep::data
