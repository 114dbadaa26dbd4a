#include "lockstep/data/tokenizers/unigram_tokenizer.h"

#include "lockstep/data/tokenizer/ids.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {

UnigramTokenizer::UnigramTokenizer(const JsonPart& root, std::string_view json) : json_(json) {
  if (root.has("normalizer")) normalizer_ = Normalizer(root.at("normalizer"));
  if (root.has("pre_tokenizer")) {
    pre_tokenizer_ = PreTokenizer(root.at("pre_tokenizer"));
    if (pre_tokenizer_.is_byte_level()) {
      root.at("pre_tokenizer").unsupported("Unigram with ByteLevel is not supported");
    }
  }
  model_ = std::make_unique<UnigramModel>(root.at("model"), vocabulary_);
  added_ = AddedTokens::parse(root, normalizer_, vocabulary_);
  borders_ = read_text_borders(root, vocabulary_);
  texts_ = TokenTexts(vocabulary_, added_,
                      root.has("decoder") ? TokenDecoder(root.at("decoder")) : TokenDecoder());
}

std::optional<TokenId> UnigramTokenizer::special(Special which) const {
  if (which == Special::kUnknown) return model_->unknown();
  return borders_.special(which, vocabulary_);
}

void UnigramTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const typename WorkspacePool<Workspace>::Lease workspace(workspaces_);
  std::string replaced;
  if (valid_utf8_prefix(text) != text.size()) {
    replaced = replace_invalid_utf8(text);
    text = replaced;
  }
  added_.encode(text, normalizer_, ids, [&](std::string_view stretch, bool is_first) {
    pre_tokenizer_.split(stretch, is_first, workspace->pieces);
    for (const std::string_view piece : workspace->pieces.list) {
      encode_piece(piece, *workspace, ids);
    }
  });
}

void UnigramTokenizer::encode_piece(std::string_view piece, Workspace& workspace,
                                    std::vector<TokenId>& ids) const {
  if (workspace.cache.append(piece, ids)) return;
  const std::size_t before = ids.size();
  model_->encode(piece, ids, workspace.model);
  workspace.cache.remember(piece, std::span(ids).subspan(before));
}

void UnigramTokenizer::decode(std::span<const TokenId> ids, std::string& text) const {
  check_ids(ids, vocabulary_);
  texts_.append(ids, text);
}

}  // namespace lockstep::data
