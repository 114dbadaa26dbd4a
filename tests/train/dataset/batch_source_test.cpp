// What a run reads, in which order, and what it cannot read.
#include "lockstep/train/dataset/batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "tests/train/dataset/batch_contents.h"

namespace lockstep::train::batch_source_test {
namespace {

using data::TokenId;
using fixtures::TemporaryFolder;
using namespace batch_contents;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(NextToken, AsksForTheTokenBehindEachAndReadsEveryWindowOnce) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(counting_stream(folder, 52), folder.path());
  const auto source = make_batch_source(dataset, source_setup(Objective::kNextToken, 1, 7));
  ASSERT_EQ(source->sequences(), 51u / 7);
  EXPECT_EQ(source->validation_batches(), 0u);
  std::set<TokenId> covered;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<TokenId> seen;
    for (std::uint64_t i = 0; i < source->sequences(); ++i) {
      const nn::Batch batch = source->training(epoch * source->sequences() + i, 1)[0];
      const auto tokens = batch.tokens.as<const TokenId>();
      const auto targets = batch.targets.as<const TokenId>();
      for (std::size_t j = 0; j < tokens.size(); ++j) {
        EXPECT_EQ(targets[j], tokens[j] + 1);
        EXPECT_TRUE(seen.insert(tokens[j]).second) << tokens[j] << " came twice";
        if (j > 0) {
          EXPECT_EQ(tokens[j], (tokens[j - 1] + 1) % 51);
        }
      }
    }
    covered.merge(seen);
  }
  EXPECT_EQ(covered.size(), 51u);
}

TEST(NextToken, AnyDivisionOfASequenceRangeSeesTheSameGlobalBatch) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(counting_stream(folder, 1000, 0.1), folder.path());
  expect_one_global_batch(dataset, Objective::kNextToken, 17);
}

TEST(NextToken, AStepWhoseDataHasNoRoomIsRefused) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(counting_stream(folder, 1000), folder.path());
  const auto source = make_batch_source(dataset, source_setup(Objective::kNextToken, 2, 17));
  try {
    source->training(0, std::numeric_limits<int>::max());
    FAIL() << "there was room";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("2147483647 micro-batches of 2 sequences"),
                                    HasSubstr("choose a smaller train.global_batch_size")));
  }
  EXPECT_EQ(source->training(0, 3).size(), 3u);
}

TEST(NextToken, AnotherSeedIsAnotherOrder) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(counting_stream(folder, 1000), folder.path());
  std::set<std::vector<double>> firsts;
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Contents contents;
    const auto source =
        make_batch_source(dataset, source_setup(Objective::kNextToken, 8, 17, seed));
    add_contents(source->training(0, 1), contents);
    firsts.insert(contents["tokens"]);
  }
  EXPECT_EQ(firsts.size(), 3u);
}

TEST(NextToken, ValidationIsTheEndOfTheDataAndAllOfIt) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(counting_stream(folder, 200, 0.25), folder.path());
  const auto source = make_batch_source(dataset, source_setup(Objective::kNextToken, 3, 8));
  for (std::uint64_t i = 0; i < source->sequences(); ++i) {
    EXPECT_THAT(source->training(i, 1)[0].targets.as<const TokenId>(), Each(::testing::Lt(150)));
  }
  ASSERT_EQ(source->validation_batches(), 3u);  // 49 targets: 7 sequences, of which 3 make a batch
  TokenId expected = 150;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const nn::Batch batch = source->validation(i);
    const auto targets = batch.targets.as<const TokenId>();
    for (std::size_t j = 0; j < targets.size(); ++j) {
      if (expected == 199) {
        EXPECT_EQ(targets[j], ops::kNoTarget);
      } else {
        EXPECT_EQ(batch.tokens.as<const TokenId>()[j], expected);
        EXPECT_EQ(targets[j], ++expected);
      }
    }
  }
  EXPECT_EQ(expected, 199);
  EXPECT_THROW(source->validation(3), Error);
}

TEST(NextToken, DataThatIsTooShortOrOfAnotherVocabularyIsRefused) {
  const TemporaryFolder folder;
  const Dataset dataset = open_dataset(counting_stream(folder, 20, 0.5), folder.path());
  EXPECT_THAT(refusal_of_source(dataset, source_setup(Objective::kNextToken, 1, 10)),
              AllOf(HasSubstr("has 20 tokens, 10 of them held back"), HasSubstr("needs 11")));
  EXPECT_EQ(make_batch_source(dataset, source_setup(Objective::kNextToken, 1, 9))->sequences(), 1u);
  SourceSetup small = source_setup(Objective::kNextToken, 1, 4);
  small.vocabulary = 1000;
  EXPECT_THAT(refusal_of_source(dataset, small), HasSubstr("model.vocabulary"));
  EXPECT_THROW(make_batch_source(dataset, source_setup(Objective::kNextToken, 0, 4)), Error);
}

TEST(OpenDataset, TextIsTokenisedOnceAndAgainWhenItChanged) {
  const TemporaryFolder folder;
  data::DataOptions options;
  options.text = folder.put("text/a.txt", "hello\nworld\n");
  options.tokenizer = "character";
  const auto cache = folder / "cache/deep";
  int news = 0;
  const auto open = [&] {
    news = 0;
    return open_dataset(options, cache, [&](std::string_view) { ++news; });
  };
  EXPECT_EQ(open().vocabulary(), 8);
  EXPECT_GT(news, 0);
  {
    const Dataset again = open();
    EXPECT_EQ(news, 0);
    std::vector<TokenId> ids(again.training->size());
    again.training->read(0, ids, again.vocabulary());
    std::string text;
    again.tokenizer->decode(ids, text);
    EXPECT_EQ(text, "hello\nworld\n");
  }
  EXPECT_EQ(data::load_tokenizer(cache)->kind(), "character");
  // Same size, other content.
  folder.put("text/a.txt", "jello\nworld\n");
  EXPECT_EQ(open().training->size(), 12u);
  EXPECT_GT(news, 0);
  // Another tokenizer, and a validation text of its own.
  options.tokenizer = "byte";
  options.validation_text = folder.put("v.txt", "abc");
  const Dataset bytes = open();
  EXPECT_GT(news, 0);
  EXPECT_EQ(bytes.vocabulary(), 256);
  EXPECT_EQ(bytes.validation->size(), 3u);
  // Damaged.
  open();
  EXPECT_EQ(news, 0);
  std::filesystem::resize_file(cache / "training.tokens", 70);
  EXPECT_EQ(open().training->size(), 12u);
  EXPECT_GT(news, 0);
}

TEST(OpenDataset, TokensOfATextThatIsGoneAreUsed) {
  for (const std::string tokenizer : {"byte", "character", "bpe"}) {
    SCOPED_TRACE(tokenizer);
    const TemporaryFolder folder;
    const auto cache = folder / "cache";
    data::DataOptions options;
    options.text = folder.put("a.txt", "hello hello\nworld\n");
    options.validation_text = folder.put("v.txt", "hello");
    options.tokenizer = tokenizer;
    options.bpe_vocabulary = 258;
    const auto contents = [](const data::TokenFile& file) {
      std::vector<TokenId> ids(file.size());
      file.read(0, ids, 1000);
      return ids;
    };
    std::vector<TokenId> training;
    std::vector<TokenId> validation;
    {
      const Dataset made = open_dataset(options, cache);
      training = contents(*made.training);
      validation = contents(*made.validation);
    }
    std::filesystem::remove(folder / "a.txt");
    std::filesystem::remove(folder / "v.txt");
    std::string news;
    const Dataset kept = open_dataset(options, cache, [&](std::string_view text) { news += text; });
    EXPECT_EQ(contents(*kept.training), training);
    EXPECT_EQ(contents(*kept.validation), validation);
    EXPECT_THAT(news, AllOf(HasSubstr("there is no text at"), HasSubstr("a.txt"),
                            HasSubstr("v.txt"), HasSubstr("its tokens in")));

    // They are those of this text and this tokenizer alone.
    data::DataOptions other = options;
    other.text = folder / "b.txt";
    EXPECT_THAT(refusal_of_data(other, cache), HasSubstr("b.txt: there is nothing of that name"));
    other = options;
    other.tokenizer = tokenizer == "byte" ? "character" : "byte";
    EXPECT_THAT(refusal_of_data(other, cache), HasSubstr("were made with another tokenizer"));
    std::filesystem::resize_file(cache / "training.tokens", 70);
    EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("are damaged"));
  }
}

TEST(OpenDataset, RefusesWhatIsNoData) {
  const TemporaryFolder folder;
  const auto cache = folder / "cache";
  data::DataOptions options;
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("the run has no data"));
  options.text = folder / "none.txt";
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("none.txt"));
  options.text = folder.put("empty.txt", "");
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("empty"));
  options.tokens = folder / "x.bin";
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("several kinds"));
  options.tokens.clear();
  options.text = folder.put("a.txt", "abc");
  options.validation_text = folder / "gone";
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("gone"));
  options.validation_tokens = "b";
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("leave one out"));
  options = {};
  options.text = folder / "a.txt";
  EXPECT_THAT(refusal_of_data(options, "/proc/none", ErrorCode::kSystem), HasSubstr("/proc/none"));
  options.tokenizer = folder / "no.json";
  EXPECT_THAT(refusal_of_data(options, cache), HasSubstr("no.json"));
}

TEST(OpenDataset, ATokenFileKnowsTheTokenizerBesideIt) {
  const TemporaryFolder folder;
  data::DataOptions options = counting_stream(folder, 20);
  EXPECT_EQ(open_dataset(options, folder / "cache").tokenizer, nullptr);
  options.tokenizer = "byte";  // whose ids are below 256
  EXPECT_THAT(refusal_of_data(options, folder / "cache"), HasSubstr("another tokenizer"));
  options.tokenizer = "bpe";
  EXPECT_THAT(refusal_of_data(options, folder / "cache"), HasSubstr("learned from text"));
  // What open_dataset makes of text is a token file with its tokenizer beside it.
  data::DataOptions text;
  text.text = folder.put("a.txt", "some text");
  const Dataset made = open_dataset(text, folder / "made");
  options = {};
  options.tokens = folder / "made/training.tokens";
  EXPECT_EQ(open_dataset(options, folder / "cache").tokenizer->kind(), "byte");
  folder.put("made/tokenizer.json", data::make_character_tokenizer("some text")->json());
  EXPECT_THAT(refusal_of_data(options, folder / "cache"), HasSubstr("another tokenizer"));
}

}  // namespace
}  // namespace lockstep::train::batch_source_test
