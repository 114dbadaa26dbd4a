// Texts that a model writes on a GPU: those of the CPU, alone or together, from captured steps.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/nn/models/models.h"
#include "lockstep/nn/parameters/weights.h"
#include "lockstep/train/generate/generate.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::train {
namespace {

using data::TokenId;
using lockstep::testing::kGpu;
using lockstep::testing::OnGpu;

constexpr std::int64_t kTokens = 37;
constexpr std::int64_t kPositions = 200;

// A letter for each of 36 tokens; the last ends a text.
class LetterTokenizer : public data::Tokenizer {
 public:
  std::string_view kind() const override { return "letters"; }
  std::int64_t vocabulary() const override { return kTokens; }
  std::optional<TokenId> special(data::Special which) const override {
    if (which == data::Special::kEndOfText) return TokenId{kTokens - 1};
    return std::nullopt;
  }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    for (const char letter : text) ids.push_back(letter - 'A');
  }
  void decode(std::span<const TokenId> ids, std::string& text) const override {
    for (const TokenId id : ids) text += static_cast<char>('A' + id);
  }
  std::string json() const override { return ""; }
};

plan::ModelShape shape_of(plan::Family family) {
  plan::ModelShape shape = plan::usual_shape(family);
  shape.name = "tiny";
  shape.vocabulary = kTokens;
  shape.positions = kPositions;
  shape.hidden = 64;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = family == plan::Family::kLlama ? 2 : 4;
  shape.feed_forward = 128;
  if (family == plan::Family::kPhi3) shape.window = 20;
  return shape;
}

// The same parameters on the CPU and on the GPU.
class Writer {
 public:
  Writer(plan::Family family, DType dtype, Device device, const nn::ModelOptions& options = {})
      : ops_(make_ops(device, 1)),
        model_(nn::make_model(shape_of(family), options)),
        weights_(model_, dtype, *ops_) {
    const auto cpu = make_cpu_ops(1);
    nn::Weights made(model_, DType::kF32, *cpu);
    made.initialise(3);
    for (float& weight : made.buffer().as<float>()) weight *= 8;  // else all texts are alike
    const Buffer wide(made.buffer().bytes(), device);
    const Tensor there = wide.tensor(DType::kF32, made.buffer().shape());
    copy(there, made.buffer());
    if (dtype == DType::kF32) {
      copy(weights_.buffer(), there);
    } else {
      ops_->run(ops::Cast{.from = there, .to = weights_.buffer()});
    }
    ops_->synchronize();
  }

  std::vector<Generation> write(const std::vector<std::vector<TokenId>>& prompts,
                                std::int64_t batch, std::int64_t positions,
                                const GenerateOptions& options) {
    nn::Decoder decoder(model_, weights_.flat(), weights_.buffer(),
                        {.positions = positions, .rows = 16, .batch = batch}, *ops_);
    return Generator(decoder, tokenizer_).run_all(prompts, options);
  }

 private:
  std::unique_ptr<Ops> ops_;
  nn::Model model_;
  nn::Weights weights_;
  LetterTokenizer tokenizer_;
};

GenerateOptions greedy(std::int64_t tokens) {
  return {.max_new_tokens = tokens,
          .sampling = {.temperature = 0},
          .stop_at_end_of_text = false,
          .slides = true};
}

const std::vector<std::vector<TokenId>> kPrompts = {
    {2, 4, 6}, {1}, {30, 2, 17, 5, 5, 5, 9, 11, 3, 3, 0, 7, 8, 21, 22, 23, 1, 2}, {8, 8}, {}};

class CudaGeneration : public OnGpu<::testing::TestWithParam<plan::Family>> {};
INSTANTIATE_TEST_SUITE_P(Families, CudaGeneration,
                         ::testing::Values(plan::Family::kGpt2, plan::Family::kLlama,
                                           plan::Family::kMixtral, plan::Family::kQwen3,
                                           plan::Family::kPhi3, plan::Family::kGptNeox),
                         [](const auto& each) {
                           std::string name(plan::name(each.param));
                           std::erase(name, '-');  // no character of a test's name
                           return name;
                         });

TEST_P(CudaGeneration, GreedyTextsAreThoseOfTheCpu) {
  Writer cpu(GetParam(), DType::kF32, {}), gpu(GetParam(), DType::kF32, kGpu);
  // With and without forgetting the older half, over one part of the keys and several.
  for (const std::int64_t positions : {kPositions, std::int64_t{24}}) {
    for (const auto& prompt : kPrompts) {
      const auto right = cpu.write({prompt}, 1, positions, greedy(150));
      const auto got = gpu.write({prompt}, 1, positions, greedy(150));
      EXPECT_EQ(got[0].text, right[0].text) << positions << " positions";
      EXPECT_EQ(got[0].tokens.size(), 150u);
    }
  }
}

TEST_P(CudaGeneration, TextsWrittenTogetherAreThoseWrittenAlone) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Writer gpu(GetParam(), dtype, kGpu);
    for (const std::int64_t positions : {kPositions, std::int64_t{24}}) {
      GenerateOptions options = greedy(100);
      options.sampling = {.temperature = 1.5, .top_k = 20, .top_p = 0.95, .seed = 4};
      options.stop_at_end_of_text = true;
      const auto together = gpu.write(kPrompts, 7, positions, options);
      for (std::size_t i = 0; i < kPrompts.size(); ++i) {
        const auto alone = gpu.write({kPrompts[i]}, 1, positions, options);
        EXPECT_EQ(together[i].text, alone[0].text) << i << ", " << positions << " positions";
        EXPECT_EQ(together[i].end, alone[0].end) << i;
      }
    }
  }
}

TEST_P(CudaGeneration, TheSecondTextOfADecoderIsWrittenByTheSameSteps) {
  const auto ops = make_cuda_ops(kGpu.index);
  const nn::Model model = nn::make_model(shape_of(GetParam()));
  nn::Weights weights(model, DType::kBF16, *ops);
  weights.initialise(3, 1);
  nn::Decoder decoder(model, weights.flat(), weights.buffer(), {.positions = kPositions}, *ops);
  const LetterTokenizer tokenizer;
  Generator generator(decoder, tokenizer);
  GenerateOptions options = greedy(60);
  options.prompt = {1, 2, 3};
  options.sampling = {.temperature = 1};
  const auto first = generator.run(options).tokens;
  options.sampling = {.temperature = 1, .top_k = 5};
  generator.run(options);  // captures steps of another choice
  options.sampling = {.temperature = 1};
  EXPECT_EQ(generator.run(options).tokens, first);
}

class CudaLongRope : public OnGpu<::testing::Test> {};

// Factors of their own for short texts and for long ones, from captured steps too.
TEST_F(CudaLongRope, TextsAreThoseOfTheCpuWhetherTheyAreShortOrLong) {
  const nn::ModelOptions options = {
      .long_rope = nn::LongRope{.original_positions = 100,
                                .short_factors = {1, 1.1f, 1.2f, 1.5f, 1.7f, 2, 2.5f, 3},
                                .long_factors = {1.5f, 2, 3, 4, 5, 7, 11, 16},
                                .amplitude = 1.2f}};
  constexpr plan::Family kFamily = plan::Family::kPhi3;
  Writer cpu(kFamily, DType::kF32, {}, options), gpu(kFamily, DType::kF32, kGpu, options);
  std::vector<std::string> texts;
  for (const std::int64_t positions : {std::int64_t{100}, kPositions}) {
    const auto right = cpu.write({kPrompts[2]}, 1, positions, greedy(60));
    const auto got = gpu.write({kPrompts[2]}, 1, positions, greedy(60));
    EXPECT_EQ(got[0].text, right[0].text) << positions << " positions";
    const auto together = gpu.write({kPrompts[0], kPrompts[2]}, 2, positions, greedy(60));
    EXPECT_EQ(together[1].text, got[0].text) << positions << " positions";
    texts.push_back(got[0].text);
  }
  EXPECT_NE(texts[0], texts[1]);
}

}  // namespace
}  // namespace lockstep::train
