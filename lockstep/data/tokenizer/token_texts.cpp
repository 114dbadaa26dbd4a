#include "lockstep/data/tokenizer/token_texts.h"

namespace lockstep::data {

TokenTexts::TokenTexts(
    const Vocabulary& vocabulary,
    const std::function<std::string(const std::string& token, TokenId id)>& decode)
    : texts_(static_cast<std::size_t>(vocabulary.size())) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (const auto& token = vocabulary.token(id)) texts_[i] = decode(*token, id);
  }
}

TokenTexts::TokenTexts(const Vocabulary& vocabulary, const AddedTokens& added,
                       const TokenDecoder& decoder)
    : stripped_blanks_(decoder.stripped_blanks()) {
  const auto texts_of = [&](bool is_first) {
    return TokenTexts(vocabulary,
                      [&](const std::string& token, TokenId id) {
                        const auto normalized = added.normalized_texts.find(id);
                        const bool is_plain = normalized == added.normalized_texts.end();
                        return decoder(is_plain ? token : normalized->second, is_first);
                      })
        .texts_;
  };
  texts_ = texts_of(false);
  first_texts_ = texts_of(true);
  if (first_texts_ == texts_) first_texts_.clear();
}

void TokenTexts::append(std::span<const TokenId> ids, std::string& text) const {
  std::size_t strip = stripped_blanks_;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool is_first = i == 0 && !first_texts_.empty();
    std::string_view token = (is_first ? first_texts_ : texts_)[static_cast<std::size_t>(ids[i])];
    while (strip > 0 && token.starts_with(' ')) {
      token.remove_prefix(1);
      --strip;
    }
    if (!token.empty()) strip = 0;
    text += token;
  }
}

}  // namespace lockstep::data
