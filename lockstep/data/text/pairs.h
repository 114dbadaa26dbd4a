// Reads sentences and their translations: lines of source, tab, target.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

struct TextPair {
  std::string_view source;
  std::string_view target;
};

// Views of `text`. Empty lines are left out, and what follows a second tab. Throws
// Error(kInvalidArgument) with `name` and the line where there is no tab, or nothing on one side of
// it, and where there are no pairs at all.
std::vector<TextPair> parse_pairs(std::string_view text, std::string_view name);

// The tokens around a translation. If the tokenizer has no such tokens, they are new ids after its
// vocabulary, so any tokenizer can be used.
struct TranslationTokens {
  TokenId begin = 0;            // what a target begins with: <s>, [CLS], T5's <pad>
  TokenId end = 0;              // what source and target end with: </s>, [SEP]
  std::int64_t vocabulary = 0;  // all ids are below it
};
TranslationTokens translation_tokens(const Tokenizer& tokenizer);

}  // namespace lockstep::data
