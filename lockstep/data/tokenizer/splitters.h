// The steps that a pre-tokenizer is made of.
#pragma once

#include <memory>

#include "lockstep/data/tokenizer/split.h"

namespace lockstep::data {

std::shared_ptr<const Splitter> make_rule_splitter(WordRule rule);
// {"type": "Split", "pattern": {"Regex" or "String": ...}, "behavior": ..., "invert": ...}
std::shared_ptr<const Splitter> make_pattern_splitter(const JsonPart& part);
// Numbers apart from the rest, as runs or each digit by itself.
std::shared_ptr<const Splitter> make_digit_splitter(bool individual);
// A blank before each piece that has none.
std::shared_ptr<const Splitter> make_blank_first();
// {"type": "Metaspace", "replacement": "▁", "prepend_scheme": ..., "split": ...}
std::shared_ptr<const Splitter> make_metaspace(const JsonPart& part);
// At white space, which is thrown away.
std::shared_ptr<const Splitter> make_white_space_splitter();
// The same, and around each punctuation character.
std::shared_ptr<const Splitter> make_bert_splitter();

}  // namespace lockstep::data
