// Texts that a model writes, with a tokenizer whose tokens end where characters do not.
#include "lockstep/train/generate/generate.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/nn/parameters/weights.h"

namespace lockstep::train::generate_test {
namespace {

using data::Special;
using data::TokenId;

constexpr std::int64_t kTokens = 37;
constexpr TokenId kEnd = 36;

// Even tokens are a letter, odd ones a byte of "\u20ac" in turn; token 36 ends a text.
class OddTokenizer : public data::Tokenizer {
 public:
  explicit OddTokenizer(std::int64_t vocabulary = kTokens, std::optional<TokenId> begin = {})
      : vocabulary_(vocabulary), begin_(begin) {}

  std::string_view kind() const override { return "odd"; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::optional<TokenId> special(Special which) const override {
    if (which == Special::kEndOfText && vocabulary_ > kEnd) return kEnd;
    return which == Special::kBegin ? begin_ : std::nullopt;
  }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    for (const char letter : text) ids.push_back(letter == '^' ? *begin_ : letter - 'a');
  }
  void decode(std::span<const TokenId> ids, std::string& text) const override {
    constexpr std::string_view kEuro = "\u20ac";
    for (const TokenId id : ids) {
      text += id % 2 == 0 ? static_cast<char>('a' + id)
                          : kEuro[static_cast<std::size_t>(id / 2) % kEuro.size()];
    }
  }
  std::string json() const override { return ""; }

 private:
  std::int64_t vocabulary_;
  std::optional<TokenId> begin_;
};

// A tiny GPT-2 of random weights and all that it works with.
struct TinyWriter {
  explicit TinyWriter(std::int64_t positions = 24, std::int64_t batch = 1)
      : model(nn::make_model(shape())), weights(model, DType::kF32, *ops) {
    weights.initialise(3);
    for (float& weight : weights.buffer().as<float>()) weight *= 20;  // else all texts are alike
    decoder.emplace(model, weights.flat(), weights.buffer(),
                    nn::DecoderOptions{.positions = positions, .batch = batch}, *ops);
  }
  static plan::ModelShape shape() {
    plan::ModelShape shape = plan::usual_shape(plan::Family::kGpt2);
    shape.name = "tiny";
    shape.vocabulary = kTokens;
    shape.positions = 24;
    shape.hidden = 16;
    shape.layers = 1;
    shape.heads = shape.kv_heads = 2;
    shape.feed_forward = 32;
    return shape;
  }

  std::unique_ptr<Ops> ops = make_cpu_ops(1);
  nn::Model model;
  nn::Weights weights;
  std::optional<nn::Decoder> decoder;
};

GenerateOptions endless(std::int64_t tokens, std::uint64_t seed = 1) {
  return {.prompt = {2, 4, 6},
          .max_new_tokens = tokens,
          .sampling = {.seed = seed},
          .stop_at_end_of_text = false};
}

std::string decoded(const OddTokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::string text;
  tokenizer.decode(tokens, text);
  return text;
}

TEST(Generate, GreedyTakesTheLikeliestTokenOfEachStep) {
  TinyWriter writer;
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  GenerateOptions options = endless(8);
  options.sampling.temperature = 0;
  const Generation made = generator.run(options);
  writer.decoder->rewind(0);
  std::vector<TokenId> right;
  Tensor logits = writer.decoder->prefill(options.prompt);
  for (int i = 0; i < 8; ++i) {
    const auto all = logits.as<const float>();
    right.push_back(static_cast<TokenId>(std::max_element(all.begin(), all.end()) - all.begin()));
    logits = writer.decoder->step(right.back());
  }
  EXPECT_EQ(made.tokens, right);
  EXPECT_EQ(made.text, decoded(tokenizer, right));
  EXPECT_EQ(made.end, Generation::End::kTokens);
}

TEST(Generate, TheSameSeedWritesTheSameText) {
  TinyWriter writer;
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  const Generation first = generator.run(endless(15));
  EXPECT_EQ(generator.run(endless(15)).tokens, first.tokens);
  EXPECT_NE(generator.run(endless(15, 2)).tokens, first.tokens);
  EXPECT_EQ(generator.run(endless(0)).text, "");
}

TEST(Generate, PiecesAreWholeCharactersAndAddUpToTheText) {
  TinyWriter writer;
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  std::size_t characters = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::string heard;
    std::vector<std::size_t> cuts;
    GenerateOptions options = endless(20, seed);
    options.sampling.temperature = 5;  // so that bytes often follow each other
    const Generation made = generator.run(options, [&](std::string_view piece) {
      heard += piece;
      cuts.push_back(heard.size());
      return true;
    });
    EXPECT_EQ(heard, made.text);
    EXPECT_EQ(made.text, decoded(tokenizer, made.tokens));
    for (std::size_t at = 0; (at = heard.find("\u20ac", at)) != std::string::npos; ++at) {
      ++characters;
      for (const std::size_t cut : cuts) EXPECT_TRUE(cut <= at || cut >= at + 3);
    }
  }
  EXPECT_GT(characters, 0u) << "no text had a character of several tokens";
}

TEST(Generate, StopsAtTheEndOfTextUnlessToldOtherwise) {
  TinyWriter writer;
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    GenerateOptions options = endless(21, seed);
    options.sampling.temperature = 100;  // every token comes now and then
    const auto on = generator.run(options).tokens;
    const auto end = std::find(on.begin(), on.end(), kEnd);
    if (end == on.end()) continue;
    options.stop_at_end_of_text = true;
    const Generation made = generator.run(options);
    EXPECT_EQ(made.end, Generation::End::kEndOfText);
    EXPECT_EQ(made.tokens, std::vector<TokenId>(on.begin(), end));
    return;
  }
  FAIL() << "no text of a hundred came to its end";
}

TEST(Generate, StopsWhereTheContextIsFull) {
  TinyWriter writer(10);
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  const Generation made = generator.run(endless(100));
  EXPECT_EQ(made.end, Generation::End::kContext);
  EXPECT_EQ(made.tokens.size(), 8u);  // the last one needs no position: nothing follows it
  GenerateOptions full = endless(1);
  full.prompt.assign(10, 1);
  EXPECT_THROW(generator.run(full), Error);
}

TEST(Generate, StopsWhenNobodyWantsMore) {
  TinyWriter writer;
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  const Generation made = generator.run(endless(20), [](std::string_view) { return false; });
  EXPECT_EQ(made.end, Generation::End::kStopped);
  EXPECT_LT(made.tokens.size(), 20u);
}

TEST(Generate, TextsWrittenTogetherAreThoseWrittenAlone) {
  const std::vector<std::vector<TokenId>> prompts = {
      {2, 4, 6}, {1}, {30, 2, 17, 5, 5, 5, 9}, {8, 8}, {}};
  // One more sequence than there are prompts. Slides at different times where the cache is small.
  for (const std::int64_t positions : {24, 10}) {
    for (const bool slides : {false, true}) {
      for (const double temperature : {0.0, 1.0, 30.0}) {
        TinyWriter writer(positions), all(positions, 6);
        const OddTokenizer tokenizer;
        GenerateOptions options = endless(40, 5);
        options.sampling.temperature = temperature;
        options.sampling.top_k = 30;
        options.slides = slides;
        options.stop_at_end_of_text = temperature > 10;  // ends some of them early
        std::vector<std::string> heard(prompts.size());
        const auto together = Generator(*all.decoder, tokenizer)
                                  .run_all(prompts, options, [&](std::size_t text, auto piece) {
                                    heard[text] += piece;
                                    return true;
                                  });
        ASSERT_EQ(together.size(), prompts.size());
        for (std::size_t i = 0; i < prompts.size(); ++i) {
          options.prompt = prompts[i];
          const Generation alone = Generator(*writer.decoder, tokenizer).run(options);
          EXPECT_EQ(together[i].tokens, alone.tokens) << i;
          EXPECT_EQ(together[i].end, alone.end) << i;
          EXPECT_EQ(heard[i], alone.text) << i;
        }
      }
    }
  }
}

TEST(Generate, ATextThatNobodyWantsEndsWithoutTheOthers) {
  TinyWriter writer(24, 2);
  const OddTokenizer tokenizer;
  Generator generator(*writer.decoder, tokenizer);
  const auto made = generator.run_all({{2}, {4}}, endless(20),
                                      [](std::size_t text, std::string_view) { return text == 1; });
  EXPECT_EQ(made[0].end, Generation::End::kStopped);
  EXPECT_EQ(made[1].tokens.size(), 20u);
  EXPECT_THROW(generator.run_all({{1}, {2}, {3}}, endless(1)), Error);
}

TEST(Generate, BeginsTextsAsTheTokenizerDoes) {
  TinyWriter writer;
  const OddTokenizer plain;
  EXPECT_EQ(Generator(*writer.decoder, plain).prompt("bc"), (std::vector<TokenId>{1, 2}));
  const OddTokenizer marked(kTokens, 35);
  EXPECT_EQ(Generator(*writer.decoder, marked).prompt("bc"), (std::vector<TokenId>{35, 1, 2}));
  EXPECT_EQ(Generator(*writer.decoder, marked).prompt("^bc"), (std::vector<TokenId>{35, 1, 2}));
  // Without a prompt: that token, or else the one between documents.
  GenerateOptions empty = endless(5);
  empty.prompt = {};
  GenerateOptions ended = endless(5);
  ended.prompt = {kEnd};
  EXPECT_EQ(Generator(*writer.decoder, plain).run(empty).tokens,
            Generator(*writer.decoder, plain).run(ended).tokens);
  const OddTokenizer bare(kEnd);
  EXPECT_THROW(Generator(*writer.decoder, bare).run(empty), Error);
}

TEST(Generate, NeverWritesTokensThatTheTokenizerLacks) {
  TinyWriter writer;
  const OddTokenizer small(5);
  Generator generator(*writer.decoder, small);
  for (const TokenId token : generator.run(endless(20)).tokens) EXPECT_LT(token, 5);
  const OddTokenizer large(kTokens + 1);
  EXPECT_THROW(Generator(*writer.decoder, large), Error);
}

}  // namespace
}  // namespace lockstep::train::generate_test
