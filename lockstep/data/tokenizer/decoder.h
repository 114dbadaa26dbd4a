// What a token's text becomes when ids are decoded: the "decoder" of a tokenizer.json whose tokens
// are characters, like Llama 2's.
//
// There are Replace (of a text), ByteFallback, Fuse, Strip (of blanks at the front), Metaspace and
// Sequence of those.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/tokenizer/json.h"

namespace lockstep::data {

class TokenDecoder {
 public:
  TokenDecoder() = default;  // tokens are what they say
  explicit TokenDecoder(const JsonPart& part);

  std::string operator()(std::string_view token) const;
  // How many blanks the front of a decoded text loses, if it has them.
  std::size_t stripped_blanks() const { return stripped_blanks_; }

 private:
  void add(const JsonPart& part);

  std::vector<std::pair<std::string, std::string>> replaced_;
  bool byte_fallback_ = false;
  std::size_t stripped_blanks_ = 0;
};

}  // namespace lockstep::data
