#include "lockstep/data/tokenizers/bpe_tokenizer.h"

#include "lockstep/data/tokenizer/ids.h"
#include "lockstep/data/tokenizers/bpe_bytes.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {

BpeTokenizer::BpeTokenizer(const JsonPart& root, std::string_view json) : json_(json) {
  if (root.has("normalizer")) normalizer_ = Normalizer(root.at("normalizer"));
  if (root.has("pre_tokenizer")) pre_tokenizer_ = PreTokenizer(root.at("pre_tokenizer"));
  rule_ = pre_tokenizer_.only_rule();
  const JsonPart model = root.at("model");
  const Vocabulary model_tokens(model.at("vocab"));
  model_ = std::make_unique<BpeModel>(model, model_tokens, pre_tokenizer_.is_byte_level());
  vocabulary_ = model_tokens;
  added_ = AddedTokens::parse(root, normalizer_, vocabulary_);
  borders_ = read_text_borders(root, vocabulary_);
  if (pre_tokenizer_.is_byte_level()) {
    texts_ = TokenTexts(vocabulary_, [&](const std::string& token, TokenId id) {
      if (!model_tokens.find(token) || added_.has(id)) return token;
      return from_visible(token).value_or(token);
    });
  } else {
    texts_ = TokenTexts(vocabulary_, added_,
                        root.has("decoder") ? TokenDecoder(root.at("decoder")) : TokenDecoder());
  }
}

std::optional<TokenId> BpeTokenizer::special(Special which) const {
  if (which == Special::kUnknown) return model_->unknown();
  return borders_.special(which, vocabulary_);
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const typename WorkspacePool<Workspace>::Lease workspace(workspaces_);
  added_.encode(text, normalizer_, ids, [&](std::string_view stretch, bool is_first) {
    encode_stretch(stretch, is_first, *workspace, ids);
  });
}

void BpeTokenizer::encode_stretch(std::string_view text, bool is_first, Workspace& workspace,
                                  std::vector<TokenId>& ids) const {
  if (pre_tokenizer_.puts_blank_first() && !text.starts_with(' ')) {
    workspace.with_blank.assign(1, ' ').append(text);
    text = workspace.with_blank;
  }
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) encode_valid(text.substr(0, valid), is_first, workspace, ids);
    text.remove_prefix(valid);
    is_first = false;
    if (text.empty()) break;
    ids.push_back(model_->encode_byte(static_cast<unsigned char>(text.front())));
    text.remove_prefix(1);
  }
}

void BpeTokenizer::encode_valid(std::string_view text, bool is_first, Workspace& workspace,
                                std::vector<TokenId>& ids) const {
  if (rule_) {
    for_each_word(*rule_, text, [&](std::string_view word) { encode_word(word, workspace, ids); });
    return;
  }
  pre_tokenizer_.split(text, is_first, workspace.pieces);
  for (const std::string_view piece : workspace.pieces.list) {
    if (pre_tokenizer_.is_byte_level()) {
      encode_word(piece, workspace, ids);
    } else {
      encode_independent(piece, workspace, ids);
    }
  }
}

void BpeTokenizer::encode_independent(std::string_view text, Workspace& workspace,
                                      std::vector<TokenId>& ids) const {
  while (!text.empty()) {
    const std::size_t bytes = model_->independent_front(text);
    encode_word(text.substr(0, bytes), workspace, ids);
    text.remove_prefix(bytes);
  }
}

void BpeTokenizer::encode_word(std::string_view word, Workspace& workspace,
                               std::vector<TokenId>& ids) const {
  if (workspace.cache.append(word, ids)) return;
  model_->encode_word(word, workspace.word, workspace.merge);
  ids.insert(ids.end(), workspace.word.begin(), workspace.word.end());
  workspace.cache.remember(word, workspace.word);
}

void BpeTokenizer::decode(std::span<const TokenId> ids, std::string& text) const {
  check_ids(ids, vocabulary_);
  texts_.append(ids, text);
}

}  // namespace lockstep::data
