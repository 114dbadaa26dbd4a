#include "lockstep/data/text/pairs.h"

#include <algorithm>
#include <initializer_list>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::data {
namespace {

std::string_view side_of(std::string_view text, std::string_view which, std::string_view name,
                         std::size_t line) {
  const std::string_view side = trim(text);
  if (side.empty()) {
    fail(ErrorCode::kInvalidArgument, "{}:{}: the {} is empty", name, line, which);
  }
  return side;
}

}  // namespace

std::vector<TextPair> parse_pairs(std::string_view text, std::string_view name) {
  std::vector<TextPair> pairs;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (trim(line).empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      fail(ErrorCode::kInvalidArgument,
           "{}:{}: expected source, tab and target, but the line has no tab", name, number);
    }
    const std::string_view behind = line.substr(tab + 1);
    pairs.push_back(
        {.source = side_of(line.substr(0, tab), "source", name, number),
         .target = side_of(behind.substr(0, behind.find('\t')), "target", name, number)});
  }
  if (pairs.empty()) fail(ErrorCode::kInvalidArgument, "{} has no pairs", name);
  return pairs;
}

TranslationTokens translation_tokens(const Tokenizer& tokenizer) {
  TranslationTokens tokens{.vocabulary = tokenizer.vocabulary()};
  const auto choose = [&](std::initializer_list<Special> candidates) {
    for (const Special candidate : candidates) {
      if (const auto id = tokenizer.special(candidate)) return *id;
    }
    return static_cast<TokenId>(tokens.vocabulary++);
  };
  tokens.begin = choose({Special::kBegin, Special::kClassify, Special::kPadding});
  tokens.end = choose({Special::kEndOfText, Special::kSeparate});
  return tokens;
}

}  // namespace lockstep::data
