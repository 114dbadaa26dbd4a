// What a tokenizer does to a text before it is cut: the "normalizer" of a tokenizer.json.
//
// There are NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, Precompiled
// (charsmap.h), BertNormalizer and Sequence of those.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"

namespace lockstep::data {

struct NormalizedText {
  std::string text;
  // Whether its first character comes from the first one of the text that was normalized: where it
  // does not, as behind white space that was stripped, Hugging Face's library takes what follows
  // for the middle of a text (Metaspace's prepend_scheme "first").
  bool from_begin = true;
};

class Normalizer {
 public:
  Normalizer() = default;  // leaves texts as they are
  // Throws Error(kUnsupported) for a type that is not among those.
  explicit Normalizer(const JsonPart& part);

  bool is_identity() const { return steps_.empty(); }
  // Bytes that are no UTF-8 stay, but for BERT's.
  NormalizedText operator()(std::string_view text) const;

 private:
  using Step = std::function<void(NormalizedText& text)>;
  void add(const JsonPart& part);

  std::vector<Step> steps_;
};

}  // namespace lockstep::data
