// The model of a Unigram tokenizer: cuts a text into the tokens whose scores have the largest sum.
//
// Every token of the text is an edge from the place where it begins to the place where it ends, and
// a character that is no token is an edge with a score below all others. The best path is found
// from the front to the back (Viterbi). Sums are those of Hugging Face's library to the bit, as
// texts of repeated characters have many paths of nearly the same sum: they are doubles, added in
// its order, and of equal ones the path that was found first stays.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/token_trie.h"
#include "lockstep/data/tokenizer/vocabulary.h"

namespace lockstep::data {

// The workspace of UnigramModel::encode().
struct UnigramWorkspace {
  // The best path to a place: its sum and its last token.
  struct Node {
    double score = 0;
    std::uint32_t bytes = 0;  // 0: no path has come here
    TokenId id = 0;
  };
  std::vector<Node> best;        // of each place from where on paths are not settled
  std::vector<Node> path;        // backwards
  std::string_view unknown_run;  // neighbouring unknown characters are one token
};

class UnigramModel {
 public:
  // Takes the "model" of a tokenizer.json and fills `vocabulary`.
  UnigramModel(const JsonPart& part, Vocabulary& vocabulary);

  std::optional<TokenId> unknown() const { return unknown_; }

  // Appends the ids of `text`, which is UTF-8. Throws Error(kInvalidArgument) for a character
  // without an id. The workspace holds what is not settled: a path is settled where no token
  // reaches over a place.
  void encode(std::string_view text, std::vector<TokenId>& ids, UnigramWorkspace& workspace) const;

 private:
  // Puts the tokens of the best path through `text`, which the workspace holds.
  void settle(std::string_view text, std::vector<TokenId>& ids, UnigramWorkspace& workspace) const;
  void put(std::string_view token, TokenId id, std::vector<TokenId>& ids,
           UnigramWorkspace& workspace) const;
  void put_unknown(std::vector<TokenId>& ids, UnigramWorkspace& workspace) const;

  TokenTrie trie_;
  std::vector<double> scores_;  // of each id
  double unknown_score_ = 0;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> bytes_{};  // -1: it has none
};

}  // namespace lockstep::data
