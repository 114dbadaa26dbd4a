// The tokens that a tokenizer.json puts before and after a text: its "post_processor".
//
// lockstep puts none there when it encodes. It takes from it which token begins a document and
// which one ends it, like T5's "</s>".
#pragma once

#include <optional>

#include "lockstep/data/tokenizer/json.h"
#include "lockstep/data/tokenizer/vocabulary.h"

namespace lockstep::data {

struct TextBorders {
  std::optional<TokenId> begin;
  std::optional<TokenId> end;

  // Of a tokenizer with such borders: one of them, else the token that goes by a usual name.
  std::optional<TokenId> special(Special which, const Vocabulary& vocabulary) const;
};

// Of TemplateProcessing, also in a Sequence; no tokens for any other.
TextBorders read_text_borders(const JsonPart& root, const Vocabulary& vocabulary);

}  // namespace lockstep::data
