// The batches of the other objectives: hidden tokens, translation, tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/dataset/batch_contents.h"

namespace lockstep::train::batch_kinds_test {
namespace {

using data::Special;
using data::TokenId;
using fixtures::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace batch_contents;

constexpr TokenId kPadding = 0, kUnknown = 1, kClassify = 2, kSeparate = 3, kMask = 4;
constexpr TokenId kFirstWord = 5;

// Knows BERT's special tokens and no text.
class WordNumbers final : public data::Tokenizer {
 public:
  std::string_view kind() const override { return "numbers"; }
  std::int64_t vocabulary() const override { return kStreamVocabulary; }
  std::optional<TokenId> special(Special which) const override {
    switch (which) {
      case Special::kPadding:
        return kPadding;
      case Special::kUnknown:
        return kUnknown;
      case Special::kMask:
        return kMask;
      case Special::kClassify:
        return framed ? std::optional(kClassify) : std::nullopt;
      case Special::kSeparate:
        return framed ? std::optional(kSeparate) : std::nullopt;
      default:
        return std::nullopt;
    }
  }
  void encode(std::string_view, std::vector<TokenId>&) const override {}
  void decode(std::span<const TokenId>, std::string&) const override {}
  std::string json() const override { return "{}"; }

  bool framed = true;
};

Dataset masked_dataset(const TemporaryFolder& folder, int tokens, double validation,
                       bool framed = true) {
  Dataset dataset = open_dataset(counting_stream(folder, tokens, validation), folder.path());
  auto tokenizer = std::make_shared<WordNumbers>();
  tokenizer->framed = framed;
  dataset.tokenizer = tokenizer;
  return dataset;
}

TEST(MaskedToken, HidesTokensBetweenClassifyAndSeparate) {
  const TemporaryFolder folder;
  const Dataset dataset = masked_dataset(folder, 1000, 0);
  const auto source = make_batch_source(dataset, source_setup(Objective::kMaskedToken, 10, 30));
  ASSERT_EQ(source->sequences(), 1000u / 28);
  int asked = 0, hidden = 0, kept = 0, words = 0;
  for (const nn::Batch& batch : source->training(0, 40)) {
    EXPECT_THAT(batch.types.as<const std::int32_t>(), Each(0));
    EXPECT_THAT(batch.key_mask.as<const std::uint8_t>(), Each(1));
    for (std::int64_t i = 0; i < 10; ++i) {
      const auto tokens = batch.tokens.row(i).as<const TokenId>();
      const auto targets = batch.targets.row(i).as<const TokenId>();
      EXPECT_EQ(tokens.front(), kClassify);
      EXPECT_EQ(tokens.back(), kSeparate);
      int questions = 0;
      for (std::size_t j = 0; j < tokens.size(); ++j) {
        const bool is_asked = targets[j] != ops::kNoTarget;
        const TokenId original = is_asked ? targets[j] : tokens[j];
        if (original < kFirstWord) {
          EXPECT_FALSE(is_asked) << "a special token was asked for";
          continue;
        }
        ++words;
        if (!is_asked) continue;
        ++questions;
        hidden += tokens[j] == kMask ? 1 : 0;
        kept += tokens[j] == original ? 1 : 0;
        EXPECT_TRUE(tokens[j] == kMask || tokens[j] >= kFirstWord);
      }
      EXPECT_GE(questions, 1);
      asked += questions;
    }
  }
  EXPECT_NEAR(asked / static_cast<double>(words), 0.15, 0.015);
  EXPECT_NEAR(hidden / static_cast<double>(asked), 0.8, 0.05);
  EXPECT_NEAR(kept / static_cast<double>(asked), 0.1, 0.04);
}

TEST(MaskedToken, AnyDivisionOfASequenceRangeSeesTheSameGlobalBatch) {
  const TemporaryFolder folder;
  expect_one_global_batch(masked_dataset(folder, 500, 0.1), Objective::kMaskedToken, 17);
}

TEST(MaskedToken, ASequenceIsMaskedAnewInEveryEpoch) {
  const TemporaryFolder folder;
  const Dataset dataset = masked_dataset(folder, 30, 0, false);
  const auto source = make_batch_source(dataset, source_setup(Objective::kMaskedToken, 1, 30));
  std::set<std::set<TokenId>> asked;
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    const auto targets = source->training(epoch, 1)[0].targets.as<const TokenId>();
    asked.emplace(targets.begin(), targets.end());
  }
  EXPECT_GT(asked.size(), 4u);
}

TEST(MaskedToken, TheRestOfValidationIsPadded) {
  const TemporaryFolder folder;
  const Dataset dataset = masked_dataset(folder, 100, 0.25);
  const auto source = make_batch_source(dataset, source_setup(Objective::kMaskedToken, 2, 12));
  ASSERT_EQ(source->validation_batches(), 2u);  // 25 tokens by 10: 3 sequences
  const nn::Batch batch = source->validation(1);
  Contents once, twice;
  add_contents(std::span(&batch, 1), once);
  EXPECT_THAT(batch.key_mask.row(0).as<const std::uint8_t>(),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.tokens.row(0).as<const TokenId>().subspan(6),
              ElementsAre(kSeparate, kPadding, kPadding, kPadding, kPadding, kPadding));
  EXPECT_THAT(batch.targets.row(1).as<const TokenId>(), Each(ops::kNoTarget));
  source->training(0, 3);
  const nn::Batch again = source->validation(1);
  add_contents(std::span(&again, 1), twice);
  EXPECT_EQ(once, twice);
}

TEST(MaskedToken, NeedsATokenizerAndAnIdForTheMask) {
  const TemporaryFolder folder;
  Dataset dataset = open_dataset(counting_stream(folder, 100), folder.path());
  const SourceSetup setup = source_setup(Objective::kMaskedToken, 2, 12);
  EXPECT_THAT(refusal_of_source(dataset, setup), HasSubstr("give data.tokenizer"));
  dataset.tokenizer = data::make_byte_tokenizer();
  SourceSetup bytes = setup;
  bytes.vocabulary = 256;
  EXPECT_THAT(refusal_of_source(dataset, bytes), HasSubstr("has no free id"));
  bytes.vocabulary = 257;
  EXPECT_NO_THROW(make_batch_source(dataset, bytes)) << "the mask is the id behind the last byte";
  dataset.tokenizer = std::make_shared<WordNumbers>();
  EXPECT_THAT(refusal_of_source(dataset, source_setup(Objective::kMaskedToken, 2, 2)),
              HasSubstr("is too short"));
}

data::DataOptions pairs_options(const TemporaryFolder& folder, std::string_view text,
                                double validation = 0) {
  data::DataOptions options;
  options.pairs = folder.put("pairs.tsv", text);
  options.validation_fraction = validation;
  return options;
}

TEST(Translation, FramesAndPadsBothSides) {
  const TemporaryFolder folder;
  const Dataset dataset =
      open_dataset(pairs_options(folder, "ab\tc\tignored\r\n\n"), folder / "cache");
  EXPECT_EQ(dataset.vocabulary(), 258);  // the bytes, a begin and an end
  EXPECT_EQ(data::load_tokenizer(folder / "cache")->kind(), "byte");
  SourceSetup setup = source_setup(Objective::kTranslate, 1, 4);
  setup.shape.source_sequence = 5;
  const auto source = make_batch_source(dataset, setup);
  EXPECT_EQ(source->sequences(), 1u);
  const nn::Batch batch = source->training(0, 1)[0];
  EXPECT_THAT(batch.source.as<const TokenId>(), ElementsAre('a', 'b', 257, 257, 257));
  EXPECT_THAT(batch.source_mask.as<const std::uint8_t>(), ElementsAre(1, 1, 1, 0, 0));
  EXPECT_THAT(batch.tokens.as<const TokenId>(), ElementsAre(256, 'c', 257, 257));
  EXPECT_THAT(batch.key_mask.as<const std::uint8_t>(), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(batch.targets.as<const TokenId>(),
              ElementsAre('c', 257, ops::kNoTarget, ops::kNoTarget));
}

TEST(Translation, EveryPairThatFitsComesOnceAndTheEndIsHeldBack) {
  const TemporaryFolder folder;
  std::string text = "much too long a source\tx\n";
  for (char letter = 'a'; letter <= 't'; ++letter) text += fmt::format("{}\t{}\n", letter, letter);
  const Dataset dataset = open_dataset(pairs_options(folder, text, 0.1), folder / "cache");
  SourceSetup setup = source_setup(Objective::kTranslate, 3, 3);
  setup.shape.source_sequence = 3;
  const auto source = make_batch_source(dataset, setup);
  ASSERT_EQ(source->sequences(), 18u);
  std::set<TokenId> seen;
  for (const nn::Batch& batch : source->training(18, 6)) {
    for (std::int64_t i = 0; i < 3; ++i) seen.insert(batch.source.row(i).as<const TokenId>()[0]);
  }
  EXPECT_EQ(seen.size(), 18u);
  EXPECT_EQ(*seen.rbegin(), 'r');
  ASSERT_EQ(source->validation_batches(), 1u);
  const nn::Batch held_back = source->validation(0);
  EXPECT_EQ(held_back.source.row(0).as<const TokenId>()[0], 's');
  EXPECT_THAT(held_back.targets.row(2).as<const TokenId>(), Each(ops::kNoTarget));
  expect_one_global_batch(dataset, Objective::kTranslate, 5, 4);
}

TEST(Translation, SaysHowManyPairsAreTooLong) {
  const TemporaryFolder folder;
  const Dataset dataset =
      open_dataset(pairs_options(folder, "abcd\ta\nab\tabc\na\tabcdefg\n"), folder / "cache");
  const auto left_out = [&](std::int64_t sequence) {
    SourceSetup setup = source_setup(Objective::kTranslate, 1, sequence);
    setup.shape.source_sequence = sequence;
    return make_batch_source(dataset, setup)->left_out();
  };
  EXPECT_THAT(left_out(4), AllOf(HasSubstr("2 of 3 pairs"), HasSubstr("the 4 tokens"),
                                 HasSubstr("the longest has 8")));
  EXPECT_THAT(left_out(5), HasSubstr("1 of 3 pairs"));
  EXPECT_EQ(left_out(8), "");
}

TEST(Translation, LeavesOutWhatFollowsASecondTab) {
  const TemporaryFolder folder;
  const auto pairs = [&](std::string_view text) {
    return open_dataset(pairs_options(folder, text), folder / "cache").pairs;
  };
  const auto two = pairs("ab\tcde\n");
  const auto three = pairs("ab\tcde\tby somebody\tno. 7\n");
  ASSERT_EQ(three.size(), 1u);
  EXPECT_EQ(three[0].source, two[0].source);
  EXPECT_EQ(three[0].target, two[0].target);
}

TEST(Translation, RefusesLinesThatAreNoPairs) {
  const TemporaryFolder folder;
  const auto refused = [&](std::string_view text) {
    return refusal_of_data(pairs_options(folder, text), folder / "cache");
  };
  EXPECT_THAT(refused("a\tb\nc d\n"), AllOf(HasSubstr("pairs.tsv:2:"), HasSubstr("no tab")));
  EXPECT_THAT(refused("a\tb\n\t d\n"), AllOf(HasSubstr("pairs.tsv:2:"), HasSubstr("source")));
  EXPECT_THAT(refused("a\t\n"), HasSubstr("target is empty"));
  EXPECT_THAT(refused("\n\n"), HasSubstr("no pairs"));
  EXPECT_THAT(refused(""), HasSubstr("no pairs"));
  const Dataset dataset = open_dataset(pairs_options(folder, "abcd\tabc\n"), folder / "cache");
  SourceSetup setup = source_setup(Objective::kTranslate, 1, 4);
  setup.shape.source_sequence = 4;
  EXPECT_THAT(refusal_of_source(dataset, setup), HasSubstr("the shortest takes 5"));
  setup.vocabulary = 256;
  EXPECT_THAT(refusal_of_source(dataset, setup), HasSubstr("at least 258"));
  EXPECT_THAT(refusal_of_source(dataset, source_setup(Objective::kNextToken, 1, 4)),
              HasSubstr("data.text"));
}

data::DataOptions table_options(const TemporaryFolder& folder, std::string_view text,
                                double validation = 0) {
  data::DataOptions options;
  options.table = folder.put("houses.csv", text);
  options.validation_fraction = validation;
  return options;
}

TEST(TableRows, AreScaledToMeanZeroAndDeviationOne) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(
      table_options(folder, "\"size\",same,price\n1, 7,\"10\"\n+2,7,2e1\r\n\n3,7,30\n"),
      std::filesystem::path("unused"));
  EXPECT_EQ(dataset.features, 2);
  const float far = std::sqrt(1.5f);
  EXPECT_THAT(dataset.table, ::testing::Pointwise(::testing::FloatNear(1e-6f),
                                                  {-far, 0.f, -far, 0.f, 0.f, 0.f, far, 0.f, far}));
  const auto source = make_batch_source(dataset, source_setup(Objective::kRegress, 3, 1));
  ASSERT_EQ(source->sequences(), 3u);
  const nn::Batch batch = source->training(0, 1)[0];
  EXPECT_EQ(batch.inputs.shape(), Shape({3, 2}));
  EXPECT_EQ(batch.outputs.shape(), Shape({3, 1}));
  expect_one_global_batch(dataset, Objective::kRegress, 1);
}

TEST(TableRows, HeldBackRowsDoNotScaleTheOthers) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(table_options(folder, "0,0\n2,2\n0,0\n1000,1000\n", 0.25),
                                       std::filesystem::path("unused"));
  const auto source = make_batch_source(dataset, source_setup(Objective::kRegress, 2, 1));
  EXPECT_EQ(source->sequences(), 3u);
  ASSERT_EQ(source->validation_batches(), 1u);
  EXPECT_THAT(source->validation(0).outputs.as<const float>(), Each(::testing::Gt(100)));
}

TEST(TableRows, RefusesTextAndRaggedRowsWithTheirLine) {
  const TemporaryFolder folder;
  const auto refused = [&](std::string_view text) {
    return refusal_of_data(table_options(folder, text), "unused");
  };
  EXPECT_THAT(refused("a,b\n1,2\n3,much\n"),
              AllOf(HasSubstr("houses.csv:3:"), HasSubstr("cell 2 is 'much'")));
  EXPECT_THAT(refused("1,2\n1,2,3\n"), AllOf(HasSubstr("houses.csv:2:"), HasSubstr("3 cells")));
  EXPECT_THAT(refused("1,b\n"), AllOf(HasSubstr("houses.csv:1:"), HasSubstr("'b'")));
  EXPECT_THAT(refused("1,nan\n"), HasSubstr("'nan'"));
  EXPECT_THAT(refused("1,\n"), HasSubstr("cell 2 is ''"));
  EXPECT_THAT(refused("1\n2\n"), HasSubstr("one column"));
  EXPECT_THAT(refused("a,b\n"), HasSubstr("no rows"));
  EXPECT_THAT(refused(""), HasSubstr("no rows"));
  data::DataOptions options = table_options(folder, "1,2\n");
  options.validation_tokens = "x";
  EXPECT_THAT(refusal_of_data(options, "unused"), HasSubstr("validation_fraction"));
}

}  // namespace
}  // namespace lockstep::train::batch_kinds_test
