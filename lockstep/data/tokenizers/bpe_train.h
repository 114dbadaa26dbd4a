// Learning the merges of a byte-level BPE.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

// Tokens 0 to 255 are the bytes, in the order of their visible characters (bpe_bytes.h). The tokens
// of the merges follow.
struct LearnedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<TokenId, TokenId>> merges;
};

// Repeatedly merges the most frequent neighbouring pair within words, until there are `vocabulary`
// tokens or no pair occurs twice. Among equally frequent pairs the smaller left id wins, then the
// smaller right id, as in Hugging Face's BpeTrainer.
LearnedBpe learn_bpe(std::span<const std::string_view> texts, std::size_t vocabulary);

}  // namespace lockstep::data
