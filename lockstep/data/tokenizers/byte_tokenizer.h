// A tokenizer whose ids are the bytes themselves.
#pragma once

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

class ByteTokenizer : public Tokenizer {
 public:
  std::string_view kind() const override { return "byte"; }
  std::int64_t vocabulary() const override { return 256; }
  std::optional<TokenId> special(Special /*which*/) const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override;
  void decode(std::span<const TokenId> ids, std::string& text) const override;
  std::string json() const override;
  std::string hugging_face_json() const override;
};

}  // namespace lockstep::data
