// A BPE tokenizer as a tokenizer.json describes it.
//
// A byte-level tokenizer decodes to exactly the encoded bytes. Bytes that are not UTF-8 are encoded
// one by one, and the parts before and after them are encoded as separate texts. Other tokenizers
// (Llama 2, Gemma) decode exactly if the text contains no added token; for bytes that are not UTF-8
// they need a fallback to bytes.
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
#include "lockstep/data/tokenizers/bpe_model.h"

namespace lockstep::data {

class BpeTokenizer : public Tokenizer {
 public:
  // `json` is the text that root was parsed from.
  BpeTokenizer(const JsonPart& root, std::string_view json);

  std::string_view kind() const override { return "bpe"; }
  std::int64_t vocabulary() const override { return vocabulary_.size(); }
  std::optional<TokenId> special(Special which) const override;
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  void decode(std::span<const TokenId> ids, std::string& text) const override;
  std::string json() const override { return json_; }

 private:
  struct Workspace {
    WordCache cache;
    std::vector<TokenId> word;
    MergeWorkspace merge;
    Pieces pieces;
    std::string with_blank;
  };
  void encode_stretch(std::string_view text, bool is_first, Workspace& workspace,
                      std::vector<TokenId>& ids) const;
  void encode_valid(std::string_view text, bool is_first, Workspace& workspace,
                    std::vector<TokenId>& ids) const;
  void encode_word(std::string_view word, Workspace& workspace, std::vector<TokenId>& ids) const;
  // First cuts where that does not change ids: shorter words are more often in the cache.
  void encode_independent(std::string_view text, Workspace& workspace,
                          std::vector<TokenId>& ids) const;

  std::string json_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::optional<WordRule> rule_;
  Vocabulary vocabulary_;
  std::unique_ptr<const BpeModel> model_;
  AddedTokens added_;
  TextBorders borders_;
  TokenTexts texts_;
  mutable WorkspacePool<Workspace> workspaces_;
};

}  // namespace lockstep::data
