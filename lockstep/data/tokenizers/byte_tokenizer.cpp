#include "lockstep/data/tokenizers/byte_tokenizer.h"

#include <algorithm>

#include "lockstep/data/tokenizer/ids.h"

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

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace lockstep::data
