// A Unigram tokenizer as a tokenizer.json describes it, like those of T5, ALBERT and XLM-R.
//
// Bytes that are not UTF-8 count as U+FFFD. Texts come back as they were normalized.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/tokenizer/added.h"
#include "lockstep/data/tokenizer/normalizer.h"
#include "lockstep/data/tokenizer/split.h"
#include "lockstep/data/tokenizer/text_borders.h"
#include "lockstep/data/tokenizer/token_texts.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizer/word_cache.h"
#include "lockstep/data/tokenizer/workspace.h"
#include "lockstep/data/tokenizers/unigram_model.h"

namespace lockstep::data {

class UnigramTokenizer : public Tokenizer {
 public:
  // `json` is the text that root was parsed from.
  UnigramTokenizer(const JsonPart& root, std::string_view json);

  std::string_view kind() const override { return "unigram"; }
  std::int64_t vocabulary() const override { return vocabulary_.size(); }
  std::optional<TokenId> special(Special which) const override;
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  void decode(std::span<const TokenId> ids, std::string& text) const override;
  std::string json() const override { return json_; }

 private:
  struct Workspace {
    WordCache cache;
    UnigramWorkspace model;
    Pieces pieces;
  };
  void encode_piece(std::string_view piece, Workspace& workspace, std::vector<TokenId>& ids) const;

  std::string json_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Vocabulary vocabulary_;
  std::unique_ptr<const UnigramModel> model_;
  AddedTokens added_;
  TextBorders borders_;
  TokenTexts texts_;
  mutable WorkspacePool<Workspace> workspaces_;
};

}  // namespace lockstep::data
