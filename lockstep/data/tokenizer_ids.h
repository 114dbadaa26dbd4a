// Checks of ids that somebody hands in.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/tokenizer.h"

namespace lockstep::data {

// Throws Error(kInvalidArgument) for the first that is not in [0, vocabulary).
void check_ids(std::span<const TokenId> ids, std::int64_t vocabulary);

}  // namespace lockstep::data
