// Ids and texts are those of Hugging Face's library (tests/fixtures/make_tokenizer_fixtures.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/unicode/utf8.h"
#include "tests/paths.h"

namespace lockstep::data::hugging_face_test {
namespace {

using Json = nlohmann::json;

Json read_fixture(const std::string& name) {
  std::ifstream file(in_sources("tests/fixtures/" + name));
  return Json::parse(file);
}

const Json& fixture() {
  static const Json kJson = read_fixture("tokenizers.json");
  return kJson;
}

const Json& sentencepiece_fixture() {
  static const Json kJson = read_fixture("sentencepiece_tokenizers.json");
  return kJson;
}

std::unique_ptr<Tokenizer> made(const Json& fixture, const Json& entry) {
  Json file = fixture["bases"][entry["base"].get<std::string>()];
  for (const auto& [key, value] : entry["replaced"].items()) file[key] = value;
  return parse_tokenizer(file.dump(), "fixture");
}

TEST(HuggingFaceTokenizers, GiveTheSameIds) {
  ASSERT_GT(fixture()["entries"].size(), 15u);
  ASSERT_GT(sentencepiece_fixture()["entries"].size(), 25u);
  for (const Json* fixture : {&fixture(), &sentencepiece_fixture()}) {
    for (const Json& entry : (*fixture)["entries"]) {
      const auto tokenizer = made(*fixture, entry);
      for (std::size_t i = 0; i < (*fixture)["texts"].size(); ++i) {
        const std::string text = (*fixture)["texts"][i];
        std::vector<TokenId> ids;
        tokenizer->encode(text, ids);
        EXPECT_EQ(ids, entry["ids"][i].get<std::vector<TokenId>>())
            << entry["name"] << ": " << text;
      }
    }
  }
}

// The library shows U+FFFD for bytes that are no characters, which come back here.
TEST(HuggingFaceTokenizers, GiveTheSameTexts) {
  for (const Json* fixture : {&fixture(), &sentencepiece_fixture()}) {
    for (const Json& entry : (*fixture)["entries"]) {
      if (!entry.contains("decoded")) continue;
      const auto tokenizer = made(*fixture, entry);
      for (std::size_t i = 0; i < (*fixture)["texts"].size(); ++i) {
        const std::string theirs = entry["decoded"][i];
        std::string text;
        tokenizer->decode(entry["ids"][i].get<std::vector<TokenId>>(), text);
        if (text != theirs) text = replace_invalid_utf8(text);
        EXPECT_EQ(text, theirs) << entry["name"];
      }
    }
  }
}

// A file is kept to the byte, and read back as an equal tokenizer.
TEST(HuggingFaceTokenizers, AreExportedAsTheyWere) {
  for (const Json& entry : sentencepiece_fixture()["entries"]) {
    const auto tokenizer = made(sentencepiece_fixture(), entry);
    EXPECT_EQ(tokenizer->hugging_face_json(), tokenizer->json());
    EXPECT_EQ(parse_tokenizer(tokenizer->json(), "again")->json(), tokenizer->json());
  }
}

// What is exported for tokenizers that the library knows nothing of is the file of the fixture, and
// with that file the library gives the ids and texts that ours give.
TEST(HuggingFaceTokenizers, ReadTheExportedByteAndCharacterTokenizers) {
  const Json exported = read_fixture("exported_tokenizers.json");
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
