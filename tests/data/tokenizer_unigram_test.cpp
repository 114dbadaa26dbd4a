// Unigram, held against a plain search of the best path. That ids are the library's is tested in
// tokenizer_hugging_face_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/data/text/text_pieces.h"
#include "lockstep/data/tokenizer/token_trie.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data::unigram_test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
using Scores = std::vector<std::pair<std::string, double>>;

Json file_of(const Scores& scores, const Json& unknown = 0) {
  Json vocab = Json::array();
  for (const auto& [token, score] : scores) vocab.push_back(Json::array({token, score}));
  return {{"model", {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", vocab}}}};
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

Ids encoded(const Json& file, std::string_view text) {
  return encoded(*parse_tokenizer(file.dump(), "test"), text);
}

// Of ASCII; token 0 is the unknown one.
Ids best_path(const Scores& scores, const std::string& text) {
  double lowest = 0;
  std::size_t longest = 0;
  std::map<std::string, std::pair<TokenId, double>> tokens;
  for (std::size_t id = 0; id < scores.size(); ++id) {
    lowest = std::min(lowest, scores[id].second);
    longest = std::max(longest, scores[id].first.size());
    tokens[scores[id].first] = {static_cast<TokenId>(id), scores[id].second};
  }
  struct Best {
    double score = 0;
    std::size_t from = 0;
    TokenId id = -1;
  };
  std::vector<Best> best(text.size() + 1);
  for (std::size_t end = 1; end <= text.size(); ++end) {
    for (std::size_t from = end - std::min(end, longest); from < end; ++from) {
      const auto token = tokens.find(text.substr(from, end - from));
      const bool is_unknown = token == tokens.end();
      if (is_unknown && end - from > 1) continue;
      const double score = best[from].score + (is_unknown ? lowest - 10 : token->second.second);
      if (best[end].id < 0 || score > best[end].score) {
        best[end] = {score, from, is_unknown ? 0 : token->second.first};
      }
    }
  }
  Ids ids;
  for (std::size_t end = text.size(); end > 0; end = best[end].from) {
    if (best[end].id != 0 || ids.empty() || ids.back() != 0) ids.push_back(best[end].id);
  }
  return {ids.rbegin(), ids.rend()};
}

std::string random_letters(std::uint64_t seed, std::size_t length, std::uint64_t letters) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    text += static_cast<char>('a' + random_word(seed, 5, i) % letters);
  }
  return text;
}

TEST(Unigram, FindsTheBestPath) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Scores scores{{"<unk>", 0}};
    for (std::uint64_t i = 0; i < 40; ++i) {
      const std::string token = random_letters(seed * 1000 + i, 1 + i % 5, 3);
      const bool is_new = std::none_of(scores.begin(), scores.end(),
                                       [&](const auto& one) { return one.first == token; });
      // Halves: many paths have the same sum.
      if (is_new) {
        scores.emplace_back(token, -0.5 * static_cast<double>(random_word(seed, 1, i) % 12));
      }
    }
    const auto tokenizer = parse_tokenizer(file_of(scores).dump(), "test");
    for (const std::size_t length : {1, 2, 7, 63, 400}) {
      const std::string text = random_letters(seed + length, length, 4);
      ASSERT_EQ(encoded(*tokenizer, text), best_path(scores, text)) << text;
    }
  }
}

// Sums grow over the whole text, though paths are settled on the way.
TEST(Unigram, SettledPathsKeepTheirSums) {
  Scores scores{{"<unk>", 0}, {" ", -0.1}};
  for (const double score : {-1.1, -2.3, -3.2, -4.5, -5.4, -6.7, -7.6}) {
    scores.emplace_back(std::string(scores.size() - 1, 'a'), score);
  }
  std::string text;
  for (std::size_t i = 0; i < 3000; ++i) {
    text += std::string(1 + random_word(1, 1, i) % 20, 'a') + " ";
  }
  EXPECT_EQ(encoded(file_of(scores), text), best_path(scores, text));
}

TEST(Unigram, UnknownCharactersAreOneToken) {
  const Scores scores{{"<unk>", 0}, {"a", -1}, {"xy", -2}};
  EXPECT_EQ(encoded(file_of(scores), "aééa☃"), (Ids{1, 0, 1, 0}));
  EXPECT_EQ(encoded(file_of(scores), "axya\xff"), (Ids{1, 2, 1, 0}));
  // Its own text counts as unknown, and so does what touches it.
  EXPECT_EQ(encoded(file_of(scores), "a<unk>éa"), (Ids{1, 0, 1}));
}

TEST(Unigram, UnknownCharactersFallBackToBytes) {
  Scores scores{{"<unk>", 0}, {"a", -1}};
  for (const int byte : {0xc3, 0xa9}) scores.emplace_back(fmt::format("<0x{:02X}>", byte), -9);
  Json file = file_of(scores);
  file["model"]["byte_fallback"] = true;
  EXPECT_EQ(encoded(file, "aé"), (Ids{1, 2, 3}));
  EXPECT_EQ(encoded(file, "aéé"), (Ids{1, 2, 3, 2, 3}));
  EXPECT_EQ(encoded(file, "aé☃"), (Ids{1, 0}));  // not all bytes of the run have a token
}

TEST(Unigram, WithoutAnUnknownTokenAnUnknownCharacterIsAnError) {
  const auto tokenizer = parse_tokenizer(file_of({{"a", -1}}, nullptr).dump(), "test");
  Ids ids{7};
  EXPECT_THROW(tokenizer->encode("ab", ids), Error);
  EXPECT_EQ(ids, Ids{7});
  EXPECT_EQ(encoded(*tokenizer, "aa"), (Ids{0, 0}));
  EXPECT_EQ(tokenizer->special(Special::kUnknown), std::nullopt);
}

TEST(Unigram, TheTemplateSaysWhatEndsADocument) {
  Json file = file_of({{"<unk>", 0}, {"a", -1}, {"<stop>", 0}, {"<go>", 0}});
  EXPECT_EQ(parse_tokenizer(file.dump(), "test")->special(Special::kEndOfText), std::nullopt);
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", Json::array({{{"SpecialToken", {{"id", "<go>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"SpecialToken", {{"id", "<stop>"}, {"type_id", 0}}}}})}};
  const auto tokenizer = parse_tokenizer(file.dump(), "test");
  EXPECT_EQ(tokenizer->special(Special::kEndOfText), 2);
  EXPECT_EQ(tokenizer->special(Special::kBegin), 3);
  EXPECT_EQ(encoded(*tokenizer, "a"), Ids{1});  // nothing is put around a text
}

TEST(Unigram, ALongTextThatIsNeverCutEndsInTime) {
  Scores scores{{"<unk>", 0}};
  for (int i = 1; i <= 60; ++i) scores.emplace_back(std::string(i, 'a'), -1.0 - 0.01 * i);
  const auto tokenizer = parse_tokenizer(file_of(scores).dump(), "test");
  EXPECT_EQ(encoded(*tokenizer, std::string(600'000, 'a')).size(), 10'000u);
  EXPECT_EQ(text_cut(*tokenizer), TextCut::kNowhere);
}

TEST(TokenTrie, FindsEveryToken) {
  std::vector<std::string> tokens;
  for (std::uint64_t i = 0; i < 300; ++i) tokens.push_back(random_letters(i, 1 + i % 6, 3));
  tokens.emplace_back("");
  tokens.emplace_back("\xff\x00\x01", 3);
  std::vector<std::pair<std::string_view, TokenId>> pairs;
  std::map<std::string, TokenId> expected;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    pairs.emplace_back(tokens[i], static_cast<TokenId>(i));
    expected[tokens[i]] = static_cast<TokenId>(i);
  }
  const TokenTrie trie(pairs);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text =
        seed == 0 ? std::string("\xff\x00\x01z", 4) : random_letters(seed + 5000, seed % 9, 4);
    std::vector<std::pair<std::size_t, TokenId>> found;
    trie.for_each_prefix(text,
                         [&](std::size_t bytes, TokenId id) { found.emplace_back(bytes, id); });
    std::vector<std::pair<std::size_t, TokenId>> all;
    for (std::size_t bytes = 1; bytes <= text.size(); ++bytes) {
      const auto token = expected.find(text.substr(0, bytes));
      if (token != expected.end()) all.emplace_back(bytes, token->second);
    }
    EXPECT_EQ(found, all) << text;
  }
  TokenTrie().for_each_prefix("a", [](std::size_t, TokenId) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace lockstep::data::unigram_test
