// Part of a token file: what training reads of it, or what is held back.
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

// Throws Error(kInvalidArgument) where the dataset has no tokens, or training has fewer than
// `least`. Validation that has fewer is none.
TokenStreams token_streams(const Dataset& dataset, std::uint64_t least);

}  // namespace lockstep::train
