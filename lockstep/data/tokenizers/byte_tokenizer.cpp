#include "lockstep/data/tokenizers/byte_tokenizer.h"

#include <algorithm>

#include "lockstep/data/tokenizer/ids.h"
#include "lockstep/data/tokenizers/bpe_bytes.h"
#include "lockstep/data/tokenizers/hugging_face_json.h"

namespace lockstep::data {

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const std::size_t before = ids.size();
  ids.resize(before + text.size());
  std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(before),
                 [](char byte) { return static_cast<unsigned char>(byte); });
}

void ByteTokenizer::decode(std::span<const TokenId> ids, std::string& text) const {
  check_ids(ids, vocabulary());
  for (const TokenId id : ids) text += static_cast<char>(id);
}

std::string ByteTokenizer::json() const { return R"({"kind":"byte"})"; }

// A byte-level BPE without merges.
std::string ByteTokenizer::hugging_face_json() const {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    tokens.push_back(to_visible(std::string_view(&one, 1)));
  }
  const std::string bytes = byte_level_json(false);
  return data::hugging_face_json({.pre_tokenizer = bytes,
                                  .decoder = bytes,
                                  .model = bpe_model_json(vocabulary_json(tokens), "[]")});
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace lockstep::data
