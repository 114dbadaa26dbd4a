#include "lockstep/data/tokenizers/wordpiece_model.h"

#include <algorithm>

namespace lockstep::data {
namespace {

constexpr TokenId kNoWordPiece = -1;

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

}  // namespace

WordPieceModel::WordPieceModel(const JsonPart& part, const Vocabulary& vocabulary)
    : prefix_(part.text_or("continuing_subword_prefix", "##")),
      most_characters_(100),
      tokens_(2, kNoWordPiece) {
  const std::string_view unknown = part.text_or("unk_token", "[UNK]");
  if (const auto id = vocabulary.find(unknown)) {
    unknown_ = *id;
  } else {
    part.reject("the token '{}' for unknown words is not in the vocabulary", unknown);
  }
  if (part.has("max_input_chars_per_word")) {
    most_characters_ =
        static_cast<std::size_t>(part.at("max_input_chars_per_word").whole(0, INT64_MAX));
  }
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) {
    const auto& token = vocabulary.token(static_cast<TokenId>(id));
    if (!token) continue;
    insert(kBegins, *token, static_cast<TokenId>(id));
    if (token->starts_with(prefix_)) {
      insert(kGoesOn, std::string_view(*token).substr(prefix_.size()), static_cast<TokenId>(id));
    }
  }
}

void WordPieceModel::insert(std::uint32_t root, std::string_view token, TokenId id) {
  if (token.empty()) return;
  std::uint32_t node = root;
  for (const char byte : token) {
    std::uint32_t& next = edges_[edge(node, byte)];
    if (next == 0) {  // no edge leads back to a root
      next = static_cast<std::uint32_t>(tokens_.size());
      tokens_.push_back(kNoWordPiece);
    }
    node = next;
  }
  tokens_[node] = id;
}

void WordPieceModel::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  ids.clear();
  const auto characters =
      static_cast<std::size_t>(std::count_if(word.begin(), word.end(), begins_character));
  std::uint32_t root = kBegins;
  std::string_view rest = characters > most_characters_ ? std::string_view() : word;
  while (!rest.empty()) {
    std::uint32_t node = root;
    TokenId longest = kNoWordPiece;
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < rest.size(); ++at) {
      const std::uint32_t* next = edges_.find(edge(node, rest[at]));
      if (next == nullptr) break;
      node = *next;
      if (tokens_[node] == kNoWordPiece) continue;
      longest = tokens_[node];
      bytes = at + 1;
    }
    if (longest == kNoWordPiece) break;
    ids.push_back(longest);
    rest.remove_prefix(bytes);
    root = kGoesOn;
  }
  if (!rest.empty() || ids.empty()) ids.assign(1, unknown_);
}

}  // namespace lockstep::data
