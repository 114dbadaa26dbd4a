// What token's texts become when ids are decoded: the "decoder" of a tokenizer.json whose tokens
// are characters, like those of Llama 2 and T5.
//
// There are Replace (of a text), ByteFallback, Strip, Metaspace, Fuse and Sequence of those; behind
// Fuse there may only be a Strip of blanks at the front.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"

namespace lockstep::data {

class TokenDecoder {
 public:
  TokenDecoder() = default;  // tokens are what they say
  explicit TokenDecoder(const JsonPart& part);

  // is_first: it is the first of all that are decoded.
  std::string operator()(std::string_view token, bool is_first) const;
  // How many blanks the front of a decoded text loses, if it has them.
  std::size_t stripped_blanks() const { return stripped_blanks_; }

 private:
  using Step = std::function<std::string(std::string_view token, bool is_first)>;
  void add(const JsonPart& part);
  void add_strip(const JsonPart& part);

  std::vector<Step> steps_;
  bool byte_fallback_ = false;
  bool fused_ = false;
  std::size_t stripped_blanks_ = 0;
};

}  // namespace lockstep::data
