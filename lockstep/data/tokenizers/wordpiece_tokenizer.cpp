#include "lockstep/data/tokenizers/wordpiece_tokenizer.h"

#include "lockstep/data/tokenizer/ids.h"
#include "lockstep/data/tokenizer/wordpiece_words.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

// The replacements of Hugging Face's decoder, in its order.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kChanges[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : kChanges) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + with.size())) {
      text.replace(at, what.size(), with);
    }
  }
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(const JsonPart& root, std::string_view json) : json_(json) {
  if (root.has("normalizer")) normalizer_ = Normalizer(root.at("normalizer"));
  if (root.has("pre_tokenizer")) {
    pre_tokenizer_ = PreTokenizer(root.at("pre_tokenizer"));
    cuts_as_bert_ = root.at("pre_tokenizer").at("type").text() == "BertPreTokenizer";
    if (pre_tokenizer_.is_byte_level()) {
      root.at("pre_tokenizer").unsupported("WordPiece cannot be byte-level");
    }
  }
  const JsonPart model = root.at("model");
  vocabulary_ = Vocabulary(model.at("vocab"));
  model_ = std::make_unique<WordPieceModel>(model, vocabulary_);
  added_ = AddedTokens::parse(root, normalizer_, vocabulary_);
  decoded_prefix_ = model_->prefix();
  if (root.has("decoder")) {
    const JsonPart decoder = root.at("decoder");
    if (decoder.at("type").text() != "WordPiece") {
      decoder.unsupported("WordPiece has no decoder '{}'", decoder.at("type").text());
    }
    decoded_prefix_ = decoder.text_or("prefix", "##");
    cleanup_ = decoder.flag_or("cleanup", true);
  }
}

std::optional<TokenId> WordPieceTokenizer::special(Special which) const {
  return which == Special::kUnknown ? model_->unknown() : find_special(vocabulary_, which);
}

void WordPieceTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const typename WorkspacePool<Workspace>::Lease workspace(workspaces_);
  std::string replaced;
  if (valid_utf8_prefix(text) != text.size()) {
    replaced = replace_invalid_utf8(text);
    text = replaced;
  }
  added_.encode(text, normalizer_, ids, [&](std::string_view stretch, bool is_first) {
    encode_stretch(stretch, is_first, *workspace, ids);
  });
}

void WordPieceTokenizer::encode_stretch(std::string_view text, bool is_first, Workspace& workspace,
                                        std::vector<TokenId>& ids) const {
  const auto encode_word = [&](std::string_view word) {
    if (workspace.cache.append(word, ids)) return;
    model_->encode_word(word, workspace.word);
    ids.insert(ids.end(), workspace.word.begin(), workspace.word.end());
    workspace.cache.remember(word, workspace.word);
  };
  if (cuts_as_bert_) return for_each_bert_word(text, encode_word);
  pre_tokenizer_.split(text, is_first, workspace.pieces);
  for (const std::string_view piece : workspace.pieces.list) encode_word(piece);
}

void WordPieceTokenizer::decode(std::span<const TokenId> ids, std::string& text) const {
  check_ids(ids, vocabulary_);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string token = *vocabulary_.token(ids[i]);
    if (i > 0) {
      if (token.starts_with(decoded_prefix_)) {
        token.erase(0, decoded_prefix_.size());
      } else {
        token.insert(0, 1, ' ');
      }
    }
    if (cleanup_) clean_up(token);
    text += token;
  }
}

}  // namespace lockstep::data
