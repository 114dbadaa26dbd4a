// Ids and texts are those of Hugging Face's library (tests/fixtures/make_tokenizer_fixtures.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "tests/paths.h"

namespace lockstep::data::hugging_face_test {
namespace {

using Json = nlohmann::json;

const Json& fixture() {
  static const Json kJson = [] {
    std::ifstream file(in_sources("tests/fixtures/tokenizers.json"));
    return Json::parse(file);
  }();
  return kJson;
}

std::unique_ptr<Tokenizer> made(const Json& entry) {
  Json file = fixture()["bases"][entry["base"].get<std::string>()];
  for (const auto& [key, value] : entry["replaced"].items()) file[key] = value;
  return parse_tokenizer(file.dump(), "fixture");
}

TEST(HuggingFaceTokenizers, GiveTheSameIds) {
  ASSERT_GT(fixture()["entries"].size(), 15u);
  for (const Json& entry : fixture()["entries"]) {
    const auto tokenizer = made(entry);
    for (std::size_t i = 0; i < fixture()["texts"].size(); ++i) {
      const std::string text = fixture()["texts"][i];
      std::vector<TokenId> ids;
      tokenizer->encode(text, ids);
      EXPECT_EQ(ids, entry["ids"][i].get<std::vector<TokenId>>()) << entry["name"] << ": " << text;
    }
  }
}

TEST(HuggingFaceTokenizers, GiveTheSameTexts) {
  for (const Json& entry : fixture()["entries"]) {
    if (!entry.contains("decoded")) continue;
    const auto tokenizer = made(entry);
    for (std::size_t i = 0; i < fixture()["texts"].size(); ++i) {
      std::string text;
      tokenizer->decode(entry["ids"][i].get<std::vector<TokenId>>(), text);
      EXPECT_EQ(text, entry["decoded"][i].get<std::string>()) << entry["name"];
    }
  }
}

// What is exported for tokenizers that the library knows nothing of is the file of the fixture, and
// with that file the library gives the ids and texts that ours give.
TEST(HuggingFaceTokenizers, ReadTheExportedByteAndCharacterTokenizers) {
  std::ifstream file(in_sources("tests/fixtures/exported_tokenizers.json"));
  const Json exported = Json::parse(file);
  const auto texts = exported["texts"].get<std::vector<std::string>>();
  std::string all;
  for (const std::string& text : texts) all += text;
  const std::unique_ptr<Tokenizer> ours[] = {make_byte_tokenizer(), make_character_tokenizer(all)};
  for (const auto& tokenizer : ours) {
    const Json& theirs = exported[std::string(tokenizer->kind())];
    EXPECT_EQ(Json::parse(tokenizer->hugging_face_json()), theirs["file"]) << tokenizer->kind();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::vector<TokenId> ids;
      tokenizer->encode(texts[i], ids);
      EXPECT_EQ(ids, theirs["ids"][i].get<std::vector<TokenId>>()) << tokenizer->kind();
      EXPECT_EQ(texts[i], theirs["decoded"][i].get<std::string>()) << tokenizer->kind();
    }
  }
}

TEST(HuggingFaceTokenizers, HaveTokensForBytesThatAreNoUtf8) {
  const auto tokenizer = make_character_tokenizer("a\xff");
  const Json vocabulary = Json::parse(tokenizer->hugging_face_json())["model"]["vocab"];
  EXPECT_EQ(vocabulary, (Json{{"a", 0}, {"<0xFF>", 1}}));
}

// Theirs also merges pairs that occur once.
TEST(HuggingFaceTokenizers, LearnTheSameMerges) {
  const auto texts = fixture()["training"].get<std::vector<std::string>>();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto theirs =
      fixture()["bases"]["gpt2"]["model"]["merges"].get<std::vector<std::vector<std::string>>>();
  const auto learned = train_bpe_tokenizer(views, {.vocabulary = 520});
  const auto ours =
      Json::parse(learned->json())["model"]["merges"].get<std::vector<std::vector<std::string>>>();
  ASSERT_GT(ours.size(), 80u);
  ASSERT_LT(ours.size(), theirs.size());
  EXPECT_TRUE(std::equal(ours.begin(), ours.end(), theirs.begin()));
}

}  // namespace
}  // namespace lockstep::data::hugging_face_test
