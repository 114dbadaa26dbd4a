// Files of tokenizers that are damaged, made up or foreign.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data::malformed_test {
namespace {

using ::testing::HasSubstr;

// What is said about a file; empty where it is taken.
struct Refusal {
  ErrorCode code = ErrorCode::kSystem;
  std::string text;
};
Refusal refusal(const std::string& json) {
  try {
    parse_tokenizer(json, "file");
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

std::string with_model(const std::string& members) {
  return R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "BPE", )" + members + "}}";
}
std::string with_part(const std::string& part) {
  return "{" + part + R"(, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
}

std::string with_unigram(const std::string& members) {
  return R"({"model": {"type": "Unigram", )" + members + "}}";
}
std::string with_charsmap(const std::string& text) {
  return with_part(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + text +
                   R"("})");
}

TEST(MalformedTokenizer, IsRefusedWithItsPlace) {
  const std::string good = R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"], "a b"])";
  EXPECT_EQ(refusal(with_model(good)).text, "");
  const std::pair<std::string, std::string> kCases[] = {
      {"", "file is not valid JSON"},
      {"[1]", "file does not hold a JSON object"},
      {"{", "file is not valid JSON"},
      {"\xff", "file is not valid JSON"},
      {"{}", "file: it has no 'model'"},
      {R"({"model": 3})", "file.model: expected an object, got 3"},
      {R"({"model": {}})", "file.model"},
      {with_model(R"("merges": [])"), "file.model: it has no 'vocab'"},
      {with_model(R"("vocab": {"a": 0})"), "file.model: it has no 'merges'"},
      {with_model(R"("vocab": [], "merges": [])"),
       "file.model.vocab: expected an object, got an array"},
      {with_model(R"("vocab": {"a": -1}, "merges": [])"),
       "file.model.vocab.a: expected a whole number from 0 to 16777215, got -1"},
      {with_model(R"("vocab": {"a": 1e3}, "merges": [])"), "file.model.vocab.a"},
      {with_model(R"("vocab": {"a": "0"}, "merges": [])"), "file.model.vocab.a"},
      {with_model(R"("vocab": {"a": 99999999999}, "merges": [])"), "file.model.vocab.a"},
      {with_model(R"("vocab": {"a": 18446744073709551615}, "merges": [])"), "file.model.vocab.a"},
      {with_model(R"("vocab": {"a": 9000000}, "merges": [])"),
       "far beyond the number of tokens, 1"},
      {with_model(R"("vocab": {"a": 0, "b": 0}, "merges": [])"), "belongs to 'a' and to 'b'"},
      {with_model(R"("vocab": {"a": 0}, "merges": [["a", "b"]])"),
       "file.model.merges[0]: the token 'b' is not in the vocabulary"},
      {with_model(R"("vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]])"), "the token 'ab'"},
      {with_model(R"("vocab": {"a": 0}, "merges": [["a"]])"), "a merge has 2 tokens"},
      {with_model(R"("vocab": {"a": 0}, "merges": ["a"])"), "is not a merge"},
      {with_model(R"("vocab": {"a": 0}, "merges": ["a a a"])"), "is not a merge"},
      {with_model(R"("vocab": {"a": 0}, "merges": [7])"), "file.model.merges[0]"},
      {with_model(R"("vocab": {"a": 0}, "merges": {"a": 1})"),
       "file.model.merges: expected an array, got an object"},
      {with_model(R"("vocab": {"a": 0}, "merges": [], "unk_token": "u")"), "file.model.unk_token"},
      {with_model(R"("vocab": {"a": 0}, "merges": [], "byte_fallback": 1)"), "true or false"},
      {with_part(R"("added_tokens": [{"id": 0, "content": "b"}])"), "belongs to 'a' and to 'b'"},
      {with_part(R"("added_tokens": [{"id": 4, "content": "a"}])"), "elsewhere in the file"},
      {with_part(R"("added_tokens": [{"id": 4, "content": ""}])"), "its content is empty"},
      {with_part(R"("added_tokens": [{"content": "b"}])"), "it has no 'id'"},
      {with_part(R"("added_tokens": {"b": 1})"),
       "file.added_tokens: expected an array, got an object"},
      {with_part(R"("pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                     "pattern": {"Regex": "(["}})"),
       "file.pre_tokenizer.pattern.Regex: invalid regular expression"},
      {with_part(R"("pre_tokenizer": "ByteLevel")"), "file.pre_tokenizer"},
      {with_part(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{}]})"),
       "file.pre_tokenizer.pretokenizers[0]: it has no 'type'"},
      {R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})", "'[UNK]'"},
      {with_unigram(R"("vocab": [])"), "file.model.vocab: it has no tokens"},
      {with_unigram(R"("vocab": {"a": 0})"), "file.model.vocab: expected an array"},
      {with_unigram(R"("vocab": [["a", -1], ["b"]])"), "file.model.vocab[1]: expected a token"},
      {with_unigram(R"("vocab": [["a", "-1"]])"), "file.model.vocab[0][1]: expected a number"},
      {with_unigram(R"("vocab": [[1, -1]])"), "file.model.vocab[0][0]: expected a string"},
      {with_unigram(R"("vocab": [["a", -1], ["a", -2]])"), "has the id 1 here, and 0"},
      {with_unigram(R"("vocab": [["a", -1e999]])"), "not valid JSON"},
      {with_unigram(R"("vocab": [["a", -1]], "unk_id": 1)"), "file.model.unk_id"},
      {with_unigram(R"("vocab": [["a", -1]], "unk_id": -1)"), "file.model.unk_id"},
      {with_charsmap("A"), "file.normalizer.precompiled_charsmap: it is not Base64"},
      {with_charsmap("AAAA"), "it has no trie"},
      {with_charsmap("AAAAAA=="), "its trie of 0 bytes"},
      {with_charsmap("/////w=="), "its trie of 4294967295 bytes does not fit"},
      {with_charsmap("BAAAAAAAAAD/"), "its replacements are not UTF-8"},
      {with_part(R"("normalizer": {"type": "Strip", "strip_left": true})"), "'strip_right'"},
      {with_part(R"("normalizer": {"type": "Prepend"})"), "'prepend'"},
      {with_part(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "ab"})"),
       "file.pre_tokenizer.replacement: a character was expected"},
      {with_part(R"("decoder": {"type": "Strip", "content": "", "start": 1, "stop": 0})"),
       "file.decoder.content: a character was expected"},
  };
  for (const auto& [json, part] : kCases) {
    const Refusal given = refusal(json);
    EXPECT_EQ(given.code, ErrorCode::kProtocol) << json;
    EXPECT_THAT(given.text, HasSubstr(part)) << json;
  }
}

TEST(MalformedTokenizer, WhatLockstepDoesNotHaveIsNamed) {
  const std::pair<std::string, std::string> kCases[] = {
      {R"({"kind": "morse"})", "'morse'"},
      {R"({"model": {"type": "WordLevel", "vocab": {}}})", "'WordLevel'"},
      {with_part(R"("normalizer": {"type": "Nmt"})"), "'Nmt'"},
      {with_unigram(R"("vocab": [[")" + std::string(2000, 'a') + R"(", -1]])"),
       "file.model.vocab[0][0]: it has 2000 bytes"},
      {R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "Unigram",
           "vocab": [["a", -1]]}})",
       "file.pre_tokenizer: Unigram with ByteLevel"},
      {with_part(R"("decoder": {"type": "Sequence", "decoders":
                     [{"type": "Fuse"}, {"type": "ByteFallback"}]})"),
       "file.decoder.decoders[1]: 'ByteFallback' follows Fuse"},
      {with_part(R"("decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
                     {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})"),
       "file.decoder.decoders[1]"},
      {with_part(R"("pre_tokenizer": {"type": "UnicodeScripts"})"), "'UnicodeScripts'"},
      {with_part(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers":
                     [{"type": "ByteLevel"}, {"type": "Digits"}]})"),
       "follows ByteLevel"},
      {with_part(R"("pre_tokenizer": {"type": "Split", "behavior": "Sideways",
                     "pattern": {"String": "a"}})"),
       "'Sideways'"},
      {with_part(R"("decoder": {"type": "CTC"})"), "'CTC'"},
      {with_part(R"("added_tokens": [{"id": 4, "content": "b", "single_word": true}])"),
       "single_word"},
      {with_model(R"("vocab": {"a": 0}, "merges": [], "dropout": 0.1)"), "dropout"},
      {with_model(R"("vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>")"),
       "end_of_word_suffix"},
  };
  for (const auto& [json, part] : kCases) {
    const Refusal given = refusal(json);
    EXPECT_EQ(given.code, ErrorCode::kUnsupported) << json << given.text;
    EXPECT_THAT(given.text, HasSubstr(part)) << json;
  }
}

TEST(MalformedTokenizer, DeepNestingIsRefused) {
  for (const std::string open : {"[", R"({"model":)"}) {
    std::string json;
    for (int i = 0; i < 200'000; ++i) json += open;
    EXPECT_EQ(refusal(json).code, ErrorCode::kProtocol);
    EXPECT_THAT(refusal(R"({"model":)" + json).text, HasSubstr("levels deep"));
  }
}

TEST(MalformedTokenizer, WhatHasNoIdIsRefusedWhenItComes) {
  const auto tokenizer =
      parse_tokenizer(with_model(R"("vocab": {"a": 0, "Ġ": 5}, "merges": [])"), "file");
  std::vector<TokenId> ids{9};
  EXPECT_THROW(tokenizer->encode("ab", ids), Error);
  EXPECT_EQ(ids, std::vector<TokenId>{9});
  std::string text;
  EXPECT_THROW(tokenizer->decode(std::vector<TokenId>{0, 3}, text), Error);  // a gap
  EXPECT_THROW(tokenizer->decode(std::vector<TokenId>{0, 6}, text), Error);
  EXPECT_EQ(text, "");
}

// Units of the double array may point anywhere: a lookup that leaves the table is an error.
TEST(MalformedTokenizer, ATrieThatLeadsOutOfItsTableIsRefusedWhenItDoes) {
  const std::string far = "BAAAAAD8//8=";  // one unit, whose children are far behind it
  EXPECT_EQ(refusal(with_charsmap(far)).code, ErrorCode::kProtocol);
  EXPECT_THAT(refusal(with_charsmap(far)).text,
              HasSubstr("file.normalizer.precompiled_charsmap: its trie leads to unit"));
}

// A small file could ask for a text of any size.
TEST(MalformedTokenizer, ReplacementsThatGrowWithoutBoundAreRefused) {
  const auto steps = [](const std::string& step) {
    std::string all = step;
    for (int i = 1; i < 40; ++i) all += ", " + step;
    return all;
  };
  const std::string twice = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const auto normalizing = parse_tokenizer(
      with_part(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps(twice) + "]}"),
      "file");
  std::vector<TokenId> ids;
  EXPECT_THROW(normalizing->encode("a", ids), Error);
  EXPECT_THAT(refusal(R"({"decoder": {"type": "Sequence", "decoders": [)" + steps(twice) +
                      R"(, {"type": "Fuse"}]}, "model": {"type": "Unigram", "unk_id": 0,
                          "vocab": [["<unk>", 0], ["a", -1]]}})")
                  .text,
              HasSubstr("replacements make over"));
}

TEST(LoadTokenizer, TakesAFileOrItsFolder) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep-tokenizer-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << make_byte_tokenizer()->json();
  EXPECT_EQ(load_tokenizer(folder)->kind(), "byte");
  EXPECT_EQ(load_tokenizer(folder / "tokenizer.json")->kind(), "byte");
  EXPECT_THROW(load_tokenizer(folder / "none.json"), Error);
  std::filesystem::remove_all(folder);
  EXPECT_THROW(load_tokenizer(folder), Error);
}

}  // namespace
}  // namespace lockstep::data::malformed_test
