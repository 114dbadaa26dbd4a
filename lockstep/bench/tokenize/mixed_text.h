// Generates text that exercises a tokenizer in many ways, for benches without a given text.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::bench {

// About `bytes` of UTF-8: words of several scripts, rare and frequent as in languages, code,
// numbers, emoji, runs of white space, lines that end as on any system. Always the same.
std::string mixed_text(std::size_t bytes);

}  // namespace lockstep::bench
