// Normal forms and grapheme clusters are those of Hugging Face's library for every character
// (tests/fixtures/make_tokenizer_fixtures.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/data/unicode/graphemes.h"
#include "lockstep/data/unicode/normalization.h"
#include "lockstep/data/unicode/utf8.h"
#include "tests/paths.h"

namespace lockstep::data::normalization_test {
namespace {

using Json = nlohmann::json;

constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                         {"NFD", NormalForm::kNfd},
                                                         {"NFKC", NormalForm::kNfkc},
                                                         {"NFKD", NormalForm::kNfkd}};

const Json& fixture() {
  static const Json kJson = [] {
    std::ifstream file(in_sources("tests/fixtures/normal_forms.json"));
    return Json::parse(file);
  }();
  return kJson;
}

std::string normal(std::string_view text, NormalForm form) {
  std::string result;
  append_normal_form(text, form, result);
  return result;
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : text) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return hash;
}

constexpr char32_t kBlock = 4096;

// Every code point of a block, alone and between others.
std::string text_of_block(char32_t begin) {
  std::string text;
  for (char32_t point = begin; point < begin + kBlock; ++point) {
    if (point >= 0xd800 && point < 0xe000) continue;
    text += '|';
    append_utf8(point, text);
    text += "|a";
    append_utf8(point, text);
    append_utf8(0x323, text);
  }
  return text;
}

TEST(NormalForms, OfEveryCharacterAreTheLibrarys) {
  for (const auto& [name, form] : kForms) {
    const Json& blocks = fixture()["blocks"][name];
    ASSERT_EQ(blocks.size(), 0x110000 / kBlock);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string text = text_of_block(static_cast<char32_t>(i) * kBlock);
      EXPECT_EQ(fmt::format("{:016x}", fnv1a(normal(text, form))), blocks[i].get<std::string>())
          << name << " from U+" << std::hex << i * kBlock;
    }
  }
}

TEST(NormalForms, OfTextsAreTheLibrarys) {
  const Json& texts = fixture()["texts"];
  ASSERT_GT(texts.size(), 300u);
  for (const auto& [name, form] : kForms) {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(normal(texts[i].get<std::string>(), form), fixture()["forms"][name][i]) << name;
    }
  }
}

TEST(NormalForms, AreWhatTheirDefinitionSays) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::string text;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const std::uint64_t kind = random_word(seed, 0, i) % 4;
      const std::uint64_t drawn = random_word(seed, 1, i);
      const char32_t point = static_cast<char32_t>(
          kind == 0 ? 'a' + drawn % 26
                    : (kind == 1 ? 0x300 + drawn % 0x70
                                 : (kind == 2 ? 0xa0 + drawn % 0x2000 : 0x1100 + drawn % 0xc8)));
      append_utf8(point, text);
    }
    const std::string nfc = normal(text, NormalForm::kNfc);
    const std::string nfd = normal(text, NormalForm::kNfd);
    const std::string nfkc = normal(text, NormalForm::kNfkc);
    const std::string nfkd = normal(text, NormalForm::kNfkd);
    for (const auto& [name, form] : kForms) {
      EXPECT_EQ(normal(normal(text, form), form), normal(text, form)) << name;
    }
    EXPECT_EQ(normal(nfd, NormalForm::kNfc), nfc);
    EXPECT_EQ(normal(nfc, NormalForm::kNfd), nfd);
    EXPECT_EQ(normal(nfkd, NormalForm::kNfkc), nfkc);
    EXPECT_EQ(normal(nfc, NormalForm::kNfkd), nfkd);
  }
}

TEST(NormalForms, DecomposedMarksAreInOrder) {
  const auto nfd = [](const CodePoints& text) { return to_normal_form(text, NormalForm::kNfd); };
  // The mark below (class 220) comes before the one above (230), whatever the order was.
  EXPECT_EQ(nfd({U'é', 0x323}), (CodePoints{U'e', 0x323, 0x301}));
  EXPECT_EQ(nfd({U'e', 0x323, 0x301}), (CodePoints{U'e', 0x323, 0x301}));
  EXPECT_EQ(nfd({0x212b}), (CodePoints{U'A', 0x30a}));
  EXPECT_EQ(nfd({0xac00, 0xac01}), (CodePoints{0x1100, 0x1161, 0x1100, 0x1161, 0x11a8}));
}

TEST(NormalForms, MillionsOfMarksEndInTime) {
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) append_utf8(i % 2 == 0 ? 0x301 : 0x323, text);
  EXPECT_EQ(normal(text, NormalForm::kNfc).substr(0, 3), "ạ");
}

std::vector<std::string> clusters(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const std::size_t bytes = grapheme_bytes(text);
    result.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return result;
}

TEST(Graphemes, AreThoseOfTheStandard) {
  using Clusters = std::vector<std::string>;
  EXPECT_EQ(clusters("ab"), (Clusters{"a", "b"}));
  EXPECT_EQ(clusters("a\r\n\u0301\n\r"), (Clusters{"a", "\r\n", "\u0301", "\n", "\r"}));
  EXPECT_EQ(clusters("e\u0301\u0323x"), (Clusters{"e\u0301\u0323", "x"}));
  EXPECT_EQ(clusters("각\u1100\u1161\u11a8\u11a8ᄀ가"),
            (Clusters{"각", "\u1100\u1161\u11a8\u11a8", "ᄀ가"}));
  EXPECT_EQ(clusters("👩\u200d👩\u200d👧👩a\u200d👩"),
            (Clusters{"👩\u200d👩\u200d👧", "👩", "a\u200d", "👩"}));
  EXPECT_EQ(clusters("🇩🇪🇫🇷🇮"), (Clusters{"🇩🇪", "🇫🇷", "🇮"}));
  EXPECT_EQ(clusters("\u0600ab"), (Clusters{"\u0600a", "b"}));
  EXPECT_EQ(clusters("क्षकष"), (Clusters{"क्ष", "क", "ष"}));
}

// A table of replacements in which every byte begins one: each cluster of less than 6 bytes becomes
// a "b", and so does each character of another.
TEST(Graphemes, AreTheLibrarys) {
  const Json file{
      {"normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", fixture()["any_byte_charsmap"]}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", Json::array({Json::array({"u", 0.0}), Json::array({"b", -1.0})})}}}};
  const auto tokenizer = parse_tokenizer(file.dump(), "test");
  const Json& texts = fixture()["clusters"];
  ASSERT_GT(texts.size(), 500u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::vector<TokenId> ids;
    tokenizer->encode(texts[i].get<std::string>(), ids);
    EXPECT_EQ(ids.size(), fixture()["counts"][i].get<std::size_t>()) << texts[i];
  }
}

}  // namespace
}  // namespace lockstep::data::normalization_test
