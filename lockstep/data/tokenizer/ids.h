// Checks ids given by a caller.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizer/vocabulary.h"

namespace lockstep::data {

// Throws Error(kInvalidArgument) for the first that is not in [0, vocabulary).
void check_ids(std::span<const TokenId> ids, std::int64_t vocabulary);
// And for the first that no token has.
void check_ids(std::span<const TokenId> ids, const Vocabulary& vocabulary);

}  // namespace lockstep::data
