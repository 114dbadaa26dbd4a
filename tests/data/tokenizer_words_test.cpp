// The rules of words that are written out, held against the patterns that they are written from.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/data/tokenizer/pattern.h"
#include "lockstep/data/tokenizer/words.h"

namespace lockstep::data::words_test {
namespace {

using Words = std::vector<std::string>;

Words by_rule(WordRule rule, std::string_view text) {
  Words words;
  for_each_word(rule, text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words by_pattern(const Pattern& pattern, std::string_view text) {
  Words words;
  pattern.for_each_match(text, [&](std::size_t begin, std::size_t end) {
    words.emplace_back(text.substr(begin, end - begin));
  });
  return words;
}

// Characters that the patterns treat differently, in every order.
std::string random_text(std::uint64_t seed, std::size_t length) {
  static const std::vector<std::string> kCharacters{
      "a",      "Z",      "s",    "S",      "'",      "'",     "l",      "L",      "e",
      "v",      "R",      "t",    "m",      "D",      " ",     " ",      " ",      "\n",
      "\r",     "\t",     "\r\n", "0",      "7",      "9",     "-",      ".",      "_",
      "é",      "я",      "中",   "\u017f", "²",      "٣",     "\u00a0", "\u3000", "\u0085",
      "\u2028", "\u0301", "😀",    "\u200b", "\u180e", "\u000b"};
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    text += kCharacters[random_word(seed, 0, i) % kCharacters.size()];
  }
  return text;
}

TEST(WordRules, CutAsTheirPatternsDo) {
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    const Pattern pattern(pattern_of(rule), "test");
    EXPECT_EQ(rule_of(pattern_of(rule)), rule);
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      const std::string text = random_text(seed, seed % 37);
      ASSERT_EQ(by_rule(rule, text), by_pattern(pattern, text)) << text;
    }
  }
}

TEST(WordRules, AreThoseOfGpt2AndLlama3) {
  const std::string text = "We're  here\n\n 12345's";
  EXPECT_EQ(by_rule(WordRule::kGpt2, text),
            (Words{"We", "'re", " ", " here", "\n\n", " 12345", "'s"}));
  EXPECT_EQ(by_rule(WordRule::kLlama3, text),
            (Words{"We", "'re", " ", " here", "\n\n", " ", "123", "45", "'s"}));
  EXPECT_EQ(by_rule(WordRule::kQwen2, "12"), (Words{"1", "2"}));
}

TEST(TokenizerPattern, AnEmptyMatchMovesOnByACharacter) {
  std::vector<std::size_t> places;
  Pattern("x*", "test").for_each_match("éxa", [&](std::size_t begin, std::size_t end) {
    places.insert(places.end(), {begin, end});
  });
  EXPECT_EQ(places, (std::vector<std::size_t>{0, 0, 2, 3, 4, 4}));
}

TEST(TokenizerPattern, ALiteralIsNoExpression) {
  EXPECT_EQ(by_pattern(Pattern::literal("(.é", "test"), "x(.éa(.é"), (Words{"(.é", "(.é"}));
}

TEST(TokenizerPattern, WhatIsNoExpressionIsRefused) {
  for (const char* pattern : {"(", "[a", "a{2,1}", "\\p{Nonsense}", "\\C", "(?<=a*)b", "*"}) {
    EXPECT_THROW(Pattern(pattern, "test"), Error) << pattern;
  }
}

TEST(TokenizerPattern, OneThatNeverEndsGivesUp) {
  const std::string text(60, 'a');
  try {
    Pattern("(a|aa)+[bc]", "here").for_each_match(text, [](std::size_t, std::size_t) {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("here: "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::data::words_test
