#include "lockstep/data/tokenizer/vocabulary.h"

namespace lockstep::data {

Vocabulary::Vocabulary(const JsonPart& part) {
  expect(part.members());
  part.for_each_member([&](std::string_view token, const JsonPart& id) {
    add(token, static_cast<TokenId>(id.whole(0, kLargestTokenId)), id);
  });
}

void Vocabulary::add(std::string_view token, TokenId id, const JsonPart& place) {
  if (const auto known = find(token)) {
    if (*known == id) return;
    place.reject("the token '{}' has the id {} here, and {} elsewhere in the file", token, id,
                 *known);
  }
  const auto index = static_cast<std::size_t>(id);
  constexpr std::size_t kHarmlessGaps = 1024;
  if (index > 2 * expected_ + kHarmlessGaps) {
    place.reject("the id {} of '{}' is far beyond the number of tokens, {}", id, token, expected_);
  }
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  if (tokens_[index]) {
    place.reject("the id {} belongs to '{}' and to '{}'", id, *tokens_[index], token);
  }
  tokens_[index] = std::string(token);
  ids_.emplace(token, id);
}

void Vocabulary::expect(std::size_t more_tokens) { expected_ = ids_.size() + more_tokens; }

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Vocabulary::find_one_of(
    std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    if (const auto id = find(name)) return id;
  }
  return std::nullopt;
}

std::optional<TokenId> find_special(const Vocabulary& vocabulary, Special which) {
  switch (which) {
    case Special::kEndOfText:
      return vocabulary.find_one_of({"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"});
    case Special::kBegin:
      return vocabulary.find_one_of({"<|begin_of_text|>", "<s>", "<bos>"});
    case Special::kUnknown:
      return vocabulary.find_one_of({"<unk>", "[UNK]"});
    case Special::kPadding:
      return vocabulary.find_one_of(
          {"<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"});
    case Special::kMask:
      return vocabulary.find_one_of({"<mask>", "[MASK]"});
    case Special::kClassify:
      return vocabulary.find("[CLS]");
    case Special::kSeparate:
      return vocabulary.find("[SEP]");
  }
  return std::nullopt;
}

}  // namespace lockstep::data
