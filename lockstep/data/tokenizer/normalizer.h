// What a tokenizer does to a text before it is cut: the "normalizer" of a tokenizer.json.
//
// There are Prepend, Replace, Lowercase, NFD, BertNormalizer and Sequence of those.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/json.h"

namespace lockstep::data {

class Normalizer {
 public:
  Normalizer() = default;  // leaves texts as they are
  // Throws Error(kUnsupported) for a type that is not among those.
  explicit Normalizer(const JsonPart& part);

  bool is_identity() const { return steps_.empty(); }
  // Bytes that are no UTF-8 stay, but for BERT's.
  std::string operator()(std::string_view text) const;

 private:
  void add(const JsonPart& part);

  std::vector<std::function<std::string(std::string)>> steps_;
};

}  // namespace lockstep::data
