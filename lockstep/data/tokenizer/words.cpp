#include "lockstep/data/tokenizer/words.h"

namespace lockstep::data {

std::string_view pattern_of(WordRule rule) {
  switch (rule) {
    case WordRule::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case WordRule::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case WordRule::kQwen2:
      break;
  }
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
         R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

std::optional<WordRule> rule_of(std::string_view pattern) {
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    if (pattern == pattern_of(rule)) return rule;
  }
  return std::nullopt;
}

}  // namespace lockstep::data
