// The tokenizer that a setting or a flag names: "byte", "character", "bpe", a tokenizer.json, or a
// folder with one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

// "byte", "character" and "bpe"; anything else is a path.
bool is_tokenizer_name(std::string_view choice);

// Whether it is learned from the texts: "character" and "bpe".
bool is_learned(std::string_view choice);

// `texts` and `bpe_vocabulary` matter only if it is learned. Throws the errors of load_tokenizer().
// For a name that is neither a known one nor an existing path the error lists the known names.
std::shared_ptr<const Tokenizer> choose_tokenizer(std::string_view choice,
                                                  std::int64_t bpe_vocabulary,
                                                  std::span<const std::string_view> texts);

}  // namespace lockstep::data
