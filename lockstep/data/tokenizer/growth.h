// A bound on what replacements of a tokenizer make of a text, which a file from elsewhere decides.
#pragma once

#include <cstddef>

#include "lockstep/base/error.h"

namespace lockstep::data {

// Throws Error(kProtocol) if a text of `from` bytes became one of `made`. No normal form of Unicode
// makes more than 18 characters of one.
inline void check_growth(std::size_t made, std::size_t from) {
  constexpr std::size_t kMostTimes = 64;
  constexpr std::size_t kAlwaysAllowed = 1 << 16;
  if (made <= kAlwaysAllowed || made / kMostTimes <= from) return;
  fail(ErrorCode::kProtocol,
       "the tokenizer's replacements make over {} bytes of a text of {} bytes: its file is damaged "
       "or lies",
       made, from);
}

}  // namespace lockstep::data
