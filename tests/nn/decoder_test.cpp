// Generating text: what is decoded piece by piece is what a forward of the whole text computes.
#include "lockstep/nn/generate/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/nn/parameters/weights.h"
#include "lockstep/ops/element.h"
#include "lockstep/tensor/device_memory.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn::decoder_test {
namespace {

constexpr Tiny kDecoders[] = {Tiny::kGpt2,    Tiny::kOddGpt2, Tiny::kLlama,   Tiny::kOddLlama,
                              Tiny::kMixtral, Tiny::kQwen3,   Tiny::kGptNeox, Tiny::kGemma2};
constexpr std::int64_t kLength = 11;  // all positions that tiny models have
constexpr BatchShape kText = {.batch = 1, .sequence = kLength};

Replica make_shaken(Tiny tiny, DType dtype, Ops& ops) {
  const Setup setup = {.shape = kText, .dtype = dtype};
  Replica replica = make_replica(make_tiny(tiny), setup, ops, OptimizerState::kNone);
  replica.initialise(7);
  shake(replica, 0.2f);
  return replica;
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values;
  ops::with_float_type(tensor.dtype(), [&]<class T>(T) {
    const T* elements = reinterpret_cast<const T*>(tensor.data());
    for (std::size_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(static_cast<float>(ops::to_double(elements[i])));
    }
  });
  return values;
}

// [kLength][kVocabulary], by one forward of the whole text.
std::vector<std::vector<float>> oracle(Replica& replica, TinyBatch& text) {
  Batch batch = text.batch();
  batch.targets = {};
  batch.key_mask = {};
  Buffer memory(Tensor::bytes_of(replica.setup().dtype, {kLength, kVocabulary}));
  const Tensor logits = memory.tensor(replica.setup().dtype, {kLength, kVocabulary});
  replica.evaluate(batch, logits);
  replica.ops().synchronize();
  std::vector<std::vector<float>> rows;
  for (std::int64_t i = 0; i < kLength; ++i) rows.push_back(floats_of(logits.row(i)));
  return rows;
}

double tolerance(DType dtype, const std::vector<float>& row) {
  float most = 0;
  for (const float logit : row) most = std::max(most, std::abs(logit));
  // Sums in f32 run in other orders; in 16 bits activations are rounded some tens of times.
  const double units = dtype == DType::kF32    ? 64 * 0x1p-24
                       : dtype == DType::kBF16 ? 8 * 0x1p-8
                                               : 8 * 0x1p-11;
  return units * static_cast<double>(most);
}

void expect_near(const std::vector<float>& decoded, const std::vector<float>& right, DType dtype) {
  ASSERT_EQ(decoded.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    ASSERT_NEAR(decoded[i], right[i], tolerance(dtype, right)) << "token " << i;
  }
}

class DecoderOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Decoder, DecoderOf, testing::ValuesIn(all_ops()),
                         [](const auto& each) { return each.param; });

TEST_P(DecoderOf, PieceByPieceEqualsAForwardOfTheWholeText) {
  const auto ops = make_ops(GetParam());
  for (const Tiny tiny : kDecoders) {
    for (const DType dtype : kComputeTypes) {
      SCOPED_TRACE(name(tiny) + ", " + std::string(lockstep::name(dtype)));
      Replica replica = make_shaken(tiny, dtype, *ops);
      TinyBatch text(kText);
      const auto right = oracle(replica, text);
      const Batch batch = text.batch();
      const auto tokens = batch.tokens.as<const std::int32_t>();
      // The prompt in chunks of at most `rows` tokens: all at once, by fours, one by one.
      for (const std::int64_t rows : {16, 4, 1}) {
        Decoder decoder(replica, {.positions = kLength, .rows = rows});
        for (const std::size_t prompt : {1, 2, 7, 11}) {
          SCOPED_TRACE(std::to_string(prompt) + " tokens by " + std::to_string(rows));
          decoder.rewind(0);
          expect_near(floats_of(decoder.prefill(tokens.first(prompt))), right[prompt - 1], dtype);
          for (std::size_t i = prompt; i < tokens.size(); ++i) {
            expect_near(floats_of(decoder.step(tokens[i])), right[i], dtype);
          }
          EXPECT_EQ(decoder.position(), kLength);
        }
      }
    }
  }
}

// The text is longer than the original positions, or just as long.
TEST_P(DecoderOf, LongRopeTurnsAsInAForwardOfTheWholeText) {
  const auto ops = make_ops(GetParam());
  for (const std::int64_t original : {kLength - 1, kLength}) {
    const ModelOptions options = {.long_rope = LongRope{.original_positions = original,
                                                        .short_factors = {1, 1.5, 2, 2.5, 3},
                                                        .long_factors = {2, 3, 5, 9, 17},
                                                        .amplitude = 1.3f}};
    const nn::Setup setup = {.shape = kText, .dtype = DType::kF32};
    Replica replica = make_replica(make_model(odd_shape(plan::Family::kLlama), options), setup,
                                   *ops, OptimizerState::kNone);
    replica.initialise(7);
    shake(replica, 0.2f);
    TinyBatch text(kText);
    const auto right = oracle(replica, text);
    const Batch batch = text.batch();
    const auto tokens = batch.tokens.as<const std::int32_t>();
    Decoder decoder(replica, {.positions = kLength, .rows = 4});
    expect_near(floats_of(decoder.prefill(tokens.subspan(0, 6))), right[5], DType::kF32);
    for (std::size_t i = 6; i < tokens.size(); ++i) {
      expect_near(floats_of(decoder.step(tokens[i])), right[i], DType::kF32);
    }
  }
}

TEST(Decoder, GoesBackAndReadsOnWithTheSameBits) {
  const auto ops = make_cpu_ops(2);
  for (const Tiny tiny : kDecoders) {
    Replica replica = make_shaken(tiny, DType::kBF16, *ops);
    Decoder decoder(replica, {.positions = kLength});
    const std::vector<std::int32_t> prompt = {5, 9, 0, 36, 17};
    decoder.prefill(prompt);
    const auto first = floats_of(decoder.step(3));
    decoder.step(4);
    decoder.step(5);
    decoder.rewind(5);
    EXPECT_EQ(floats_of(decoder.step(3)), first);
    EXPECT_THROW(decoder.rewind(7), Error);
    EXPECT_THROW(decoder.rewind(-1), Error);
  }
}

// Samples while training are of the parameters as they are now.
TEST(Decoder, ReadsTheParametersOfAReplicaWhereTheyLie) {
  const auto ops = make_cpu_ops(1);
  Replica replica = make_shaken(Tiny::kGpt2, DType::kF32, *ops);
  Decoder decoder(replica, {.positions = kLength});
  const auto before = floats_of(decoder.step(1));
  for (float& gain : replica.parameter("head.norm.gain").as<float>()) gain *= 2;
  for (float& bias : replica.parameter("head.norm.bias").as<float>()) bias *= 2;
  decoder.rewind(0);
  const auto after = floats_of(decoder.step(1));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_FLOAT_EQ(after[i], 2 * before[i]);
}

TEST(Decoder, TakesTheBytesOfItsPlanAndParametersAlone) {
  const auto ops = make_cpu_ops(2);
  const Model model = make_tiny(Tiny::kLlama);
  const DecoderOptions options = {.positions = 64, .rows = 8};
  const DecoderPlan plan = plan_decoder(model, DType::kBF16, options, *ops);
  // Keys and values of 1 head of 8, of 2 layers.
  EXPECT_EQ(plan.cache_bytes(), 2u * 64 * (2 * 8) * 2);
  const std::size_t before = memory_in_use({});
  Weights weights(model, DType::kBF16, *ops);
  EXPECT_EQ(memory_in_use({}) - before, weights.flat().elements() * 2);
  weights.initialise(3);
  Decoder decoder(model, weights.flat(), weights.buffer(), options, *ops);
  EXPECT_EQ(memory_in_use({}) - before, weights.bytes() + plan.bytes());
  std::vector<std::int32_t> text(64, 11);
  decoder.prefill(text);
  EXPECT_EQ(memory_in_use({}) - before, weights.bytes() + plan.bytes());
}

TEST(Decoder, WeightsBeginAsThoseOfAReplicaDo) {
  const auto ops = make_cpu_ops(1);
  Replica replica = make_replica(make_tiny(Tiny::kOddLlama), {.shape = kText}, *ops);
  replica.initialise(5);
  Weights weights(replica.model(), DType::kF32, *ops);
  weights.initialise(5);
  EXPECT_EQ(bytes_of(weights.buffer()), bytes_of(replica.states().parameters));
}

template <class F>
std::string failure_of(ErrorCode code, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing failed";
}

TEST(Decoder, SaysWhenTheContextIsFullAndKeepsWhatItRead) {
  const auto ops = make_cpu_ops(1);
  Replica replica = make_shaken(Tiny::kGpt2, DType::kF32, *ops);
  Decoder decoder(replica, {.positions = 5});
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  decoder.prefill(prompt);
  EXPECT_NE(failure_of(ErrorCode::kInvalidArgument, [&] { decoder.prefill(prompt); })
                .find("3 tokens after the first 3 exceed its 5 positions"),
            std::string::npos);
  failure_of(ErrorCode::kInvalidArgument, [&] { decoder.prefill({}); });
  failure_of(ErrorCode::kInvalidArgument, [&] { decoder.step(kVocabulary); });
  EXPECT_EQ(decoder.position(), 3);
  decoder.step(4);
  decoder.step(5);
  EXPECT_NE(failure_of(ErrorCode::kInvalidArgument, [&] { decoder.step(6); }).find("full"),
            std::string::npos);
}

TEST(Decoder, RefusesModelsThatCannotAndMorePositionsThanThereAre) {
  const auto ops = make_reference_ops();
  const auto plan = [&](Tiny tiny, std::int64_t positions) {
    plan_decoder(make_tiny(tiny), DType::kF32, {.positions = positions}, *ops);
  };
  const auto unsupported = [&](Tiny tiny) {
    return failure_of(ErrorCode::kUnsupported, [&] { plan(tiny, 8); });
  };
  EXPECT_NE(unsupported(Tiny::kBert).find("block 'embedding'"), std::string::npos);
  EXPECT_NE(unsupported(Tiny::kEncoderDecoder).find("block 'source'"), std::string::npos);
  EXPECT_NE(unsupported(Tiny::kT5).find("block 'source'"), std::string::npos);
  EXPECT_NE(unsupported(Tiny::kLinear).find("block 'linear'"), std::string::npos);
  EXPECT_NE(
      failure_of(ErrorCode::kInvalidArgument, [&] { plan(Tiny::kGpt2, 12); }).find("11 positions"),
      std::string::npos);
  failure_of(ErrorCode::kInvalidArgument, [&] { plan(Tiny::kGpt2, 0); });
  plan(Tiny::kLlama, 12);  // its positions are angles
}

}  // namespace
}  // namespace lockstep::nn::decoder_test
