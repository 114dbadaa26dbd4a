// A WordPiece tokenizer as a tokenizer.json describes it.
//
// Bytes that are not UTF-8 count as U+FFFD.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/tokenizer/added.h"
#include "lockstep/data/tokenizer/normalizer.h"
#include "lockstep/data/tokenizer/split.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizer/word_cache.h"
#include "lockstep/data/tokenizer/workspace.h"
#include "lockstep/data/tokenizers/wordpiece_model.h"

namespace lockstep::data {

class WordPieceTokenizer : public Tokenizer {
 public:
  // `json` is the text that root was parsed from.
  WordPieceTokenizer(const JsonPart& root, std::string_view json);

  std::string_view kind() const override { return "wordpiece"; }
  std::int64_t vocabulary() const override { return vocabulary_.size(); }
  std::optional<TokenId> special(Special which) const override;
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  // Joins words with blanks; with "cleanup" there is no blank before a full stop and the like.
  void decode(std::span<const TokenId> ids, std::string& text) const override;
  std::string json() const override { return json_; }

 private:
  struct Workspace {
    WordCache cache;
    std::vector<TokenId> word;
    Pieces pieces;
  };
  void encode_stretch(std::string_view text, bool is_first, Workspace& workspace,
                      std::vector<TokenId>& ids) const;

  std::string json_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  bool cuts_as_bert_ = false;
  Vocabulary vocabulary_;
  std::unique_ptr<const WordPieceModel> model_;
  AddedTokens added_;
  std::string decoded_prefix_;  // prefix of tokens that continue a word
  bool cleanup_ = false;
  mutable WorkspacePool<Workspace> workspaces_;
};

}  // namespace lockstep::data
