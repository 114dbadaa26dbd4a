// The parts of a token file for training and validation.
#pragma once

#include <cstdint>

#include "lockstep/train/dataset/batch_source.h"

namespace lockstep::train {

struct TokenStream {
  const data::TokenFile* file = nullptr;
  std::uint64_t first = 0;
  std::uint64_t tokens = 0;

  void read(std::uint64_t at, std::span<data::TokenId> to, std::int64_t limit) const {
    file->read(first + at, to, limit);
  }
};

struct TokenStreams {
  TokenStream training;
  TokenStream validation;  // without tokens: none
};

// Throws Error(kInvalidArgument) if the dataset has no tokens, or fewer than `least` for training.
// Without `least` tokens, validation is empty.
TokenStreams token_streams(const Dataset& dataset, std::uint64_t least);

}  // namespace lockstep::train
