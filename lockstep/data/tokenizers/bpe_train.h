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

// Tokens 0 to 255 are the bytes in the order of the characters that they are written with
// (bpe_bytes.h), then come those of the merges.
struct LearnedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<TokenId, TokenId>> merges;
};

// Merges the most frequent pair of neighbours within words again and again, until there are
// `vocabulary` tokens or no pair occurs twice. Of pairs that are equally frequent the one with the
// smaller left id is taken, then the smaller right one, as Hugging Face's BpeTrainer does.
LearnedBpe learn_bpe(std::span<const std::string_view> texts, std::size_t vocabulary);

}  // namespace lockstep::data
