#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/tokenizers/bpe_merge.h"
#include "lockstep/data/tokenizers/bpe_train.h"

namespace lockstep::data::bpe_test {
namespace {

using Ids = std::vector<TokenId>;

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::string decoded(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  tokenizer.decode(ids, text);
  return text;
}

std::string random_bytes(std::uint64_t seed, std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(random_word(seed, 0, i));
  }
  return bytes;
}

std::unique_ptr<Tokenizer> learned(std::string_view text, std::int64_t vocabulary) {
  return train_bpe_tokenizer(std::array{text}, {.vocabulary = vocabulary});
}

// The definition, word for word.
Ids merged_slowly(const Merges& merges, Ids word) {
  while (true) {
    std::size_t best = word.size();
    std::uint32_t lowest = UINT32_MAX;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const Merge* merge = merges.find(pair_key(word[i], word[i + 1]));
      if (merge == nullptr || merge->rank >= lowest) continue;
      lowest = merge->rank;
      best = i;
    }
    if (best == word.size()) return word;
    word[best] = merges.find(pair_key(word[best], word[best + 1]))->id;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMerge, ShortAndLongWordsFollowTheDefinition) {
  Merges merges;
  MergeWorkspace workspace;
  // Over three letters; the ranks are in no order that training would give.
  for (TokenId id = 3; id < 40; ++id) {
    const auto left = static_cast<TokenId>(random_word(1, 0, static_cast<std::uint64_t>(id)) %
                                           static_cast<std::uint32_t>(id));
    const auto right = static_cast<TokenId>(random_word(2, 0, static_cast<std::uint64_t>(id)) %
                                            static_cast<std::uint32_t>(id));
    merges[pair_key(left, right)] = {static_cast<std::uint32_t>(id * 7 % 41), id};
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Ids word;
    for (std::uint64_t i = 0; i < seed; ++i) {
      word.push_back(static_cast<TokenId>(random_word(seed, 1, i) % 3));
    }
    const Ids expected = merged_slowly(merges, word);
    merge_word(merges, word, workspace);
    ASSERT_EQ(word, expected) << seed << " letters";
  }
}

TEST(BpeTraining, MergesTheMostFrequentPairAndTiesByIds) {
  const std::string_view text = "abab abab cdcd";
  const LearnedBpe bpe = learn_bpe(std::array{text}, 300);
  std::vector<std::string> made(bpe.tokens.begin() + 256, bpe.tokens.end());
  // ab: 4; then cd and abab occur twice, and c has the smaller id; " abab" and " cdcd" occur once.
  EXPECT_EQ(made, (std::vector<std::string>{"ab", "cd", "abab"}));
}

TEST(BpeTraining, EqualTextsGiveEqualTokenizers) {
  const std::string text = "the cat sat on the mat, the end. " + random_bytes(3, 999);
  EXPECT_EQ(learned(text, 400)->json(), learned(text, 400)->json());
}

TEST(BpeTraining, EndsAtTheVocabularyOrEarlier) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format(" word{}", i * i % 317);
  const auto tokenizer = learned(text, 300);
  EXPECT_EQ(tokenizer->vocabulary(), 300);
  EXPECT_EQ(tokenizer->special(Special::kEndOfText), 299);
  EXPECT_EQ(learned("", 300)->vocabulary(), 257);
  EXPECT_EQ(learned("ab cd", 300)->vocabulary(), 257);
  EXPECT_EQ(learned("abab", 257)->vocabulary(), 257);
}

TEST(BpeTraining, RefusesWhatCannotBe) {
  EXPECT_THROW(learned("abab", 256), Error);
  EXPECT_THROW(learned("abab", -1), Error);
  EXPECT_THROW(learned("abab", std::int64_t{1} << 40), Error);
  const std::array<std::string_view, 1> texts{"abab"};
  EXPECT_THROW(train_bpe_tokenizer(texts, {.vocabulary = 300, .end_of_text = ""}), Error);
  EXPECT_THROW(train_bpe_tokenizer(texts, {.vocabulary = 300, .end_of_text = "ab"}), Error);
  EXPECT_THROW(train_bpe_tokenizer(texts, {.vocabulary = 300, .end_of_text = "\xff"}), Error);
}

TEST(BpeTokenizer, AnyBytesComeBack) {
  const auto tokenizer = learned("the cat sat on the mat, the end. 猫 кот", 300);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::string text = random_bytes(seed, seed * 7);
    if (seed % 2 == 0) text += "the cat \xe7\x8c the \xed\xa0\x80 end" + text;
    EXPECT_EQ(decoded(*tokenizer, encoded(*tokenizer, text)), text);
  }
}

TEST(BpeTokenizer, BytesThatAreNoUtf8StandAlone) {
  const auto tokenizer = learned("the the the", 300);
  Ids parts = encoded(*tokenizer, "the");
  const Ids lone = encoded(*tokenizer, "\xff");
  ASSERT_EQ(lone.size(), 1u);
  parts.insert(parts.end(), {lone[0], lone[0]});
  const Ids the = encoded(*tokenizer, " the");
  parts.insert(parts.end(), the.begin(), the.end());
  EXPECT_EQ(encoded(*tokenizer, "the\xff\xff the"), parts);
}

TEST(BpeTokenizer, ASpecialTokenInATextIsItsId) {
  const auto tokenizer = learned("the the the", 300);
  const TokenId end = tokenizer->special(Special::kEndOfText).value();
  const Ids ids = encoded(*tokenizer, "the<|endoftext|><|endoftext|>the<|endoftext");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 2);
  EXPECT_EQ(decoded(*tokenizer, ids), "the<|endoftext|><|endoftext|>the<|endoftext");
  EXPECT_EQ(tokenizer->special(Special::kMask), std::nullopt);
}

TEST(BpeTokenizer, ComesBackFromItsJson) {
  const std::string text = "over and over and over again, \"quoted\" \\ \n";
  const auto tokenizer = learned(text, 290);
  const auto back = parse_tokenizer(tokenizer->json(), "test");
  EXPECT_EQ(back->json(), tokenizer->json());
  EXPECT_EQ(encoded(*back, text), encoded(*tokenizer, text));
}

TEST(BpeTokenizer, ManyThreadsMayUseOne) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format(" word{} of {}", i * i % 317, i);
  const auto tokenizer = learned(text, 400);
  const Ids expected = encoded(*tokenizer, text);
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& ids : results) {
      threads.emplace_back([&] { ids = encoded(*tokenizer, text); });
    }
  }
  for (const Ids& ids : results) EXPECT_EQ(ids, expected);
}

TEST(BpeTokenizer, AWordThatIsNeverCutEndsInTime) {
  const auto tokenizer = learned(std::string(1000, 'a'), 300);
  const std::string text(300'000, 'a');
  EXPECT_EQ(decoded(*tokenizer, encoded(*tokenizer, text)), text);
}

}  // namespace
}  // namespace lockstep::data::bpe_test
