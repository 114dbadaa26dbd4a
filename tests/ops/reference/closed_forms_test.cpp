// The reference against what is known without it: closed forms, numbers worked out by hand, and
// what one operation promises about another.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/base/math/counter_rng.h"
#include "tests/ops/expectations.h"

namespace lockstep::ops_test {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

Ops& reference() {
  static const auto ops = make_reference_ops();
  return *ops;
}

Tensor view(std::vector<float>& elements, const Shape& shape) {
  return tensor_of(std::span(elements), shape);
}
Tensor view(std::vector<std::int32_t>& elements) { return tensor_of(std::span(elements)); }

TEST(Linear, MultipliesByTheTransposedWeightAndAddsBiasAndResidual) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, weight = {1, 0, -1, 2, 1, 0}, bias = {10, 20};
  std::vector<float> residual = {1, 2, 3, 4}, y(4);
  reference().run(ops::Linear{.x = view(x, {2, 3}),
                              .weight = view(weight, {2, 3}),
                              .bias = view(bias, {2}),
                              .residual = view(residual, {2, 2}),
                              .y = view(y, {2, 2})});
  EXPECT_THAT(y, ElementsAre(1 - 3 + 10 + 1, 2 + 2 + 20 + 2, 4 - 6 + 10 + 3, 8 + 5 + 20 + 4));
}

TEST(LinearBackwardInput, MultipliesByTheFactorThatIsKept) {
  std::vector<float> dy = {1, 2}, weight = {3, 4, 5, 6}, factor = {10, 100}, dx(2);
  reference().run(ops::LinearBackwardInput{.dy = view(dy, {1, 2}),
                                           .weight = view(weight, {2, 2}),
                                           .factor = view(factor, {1, 2}),
                                           .dx = view(dx, {1, 2})});
  EXPECT_THAT(dx, ElementsAre((3 + 10) * 10, (4 + 12) * 100));
  reference().run(ops::LinearBackwardInput{.dy = view(dy, {1, 2}),
                                           .weight = view(weight, {2, 2}),
                                           .dx = view(dx, {1, 2}),
                                           .accumulate = true});
  EXPECT_THAT(dx, ElementsAre(130 + 13, 1600 + 16));
}

TEST(LinearBackwardWeight, AddsToWhatIsThere) {
  std::vector<float> dy = {1, 2}, x = {3, 4}, dweight = {100}, dbias = {10};
  reference().run(ops::LinearBackwardWeight{.dy = view(dy, {2, 1}),
                                            .x = view(x, {2, 1}),
                                            .dweight = view(dweight, {1, 1}),
                                            .dbias = view(dbias, {1})});
  EXPECT_THAT(dweight, ElementsAre(100 + 3 + 8));
  EXPECT_THAT(dbias, ElementsAre(10 + 3));
}

TEST(LinearBackwardWeight, OfAPartLeavesTheRestAlone) {
  std::vector<float> dy = {1, 2, 3, 4, 5, 6}, x = {10, 100}, dweight = {7, 7}, dbias = {0, 0};
  reference().run(ops::LinearBackwardWeight{.dy = view(dy, {2, 3}),
                                            .x = view(x, {2, 1}),
                                            .dweight = view(dweight, {2, 1}),
                                            .dbias = view(dbias, {2}),
                                            .first_output = 1});
  EXPECT_THAT(dweight, ElementsAre(7 + 20 + 500, 7 + 30 + 600));
  EXPECT_THAT(dbias, ElementsAre(7, 9));
}

TEST(Activate, HasTheValuesOfTheBooks) {
  const auto of = [](ops::Activation activation) {
    std::vector<float> z = {-1, 0, 1, 2}, y(4);
    reference().run(ops::Activate{.activation = activation, .z = view(z, {4}), .y = view(y, {4})});
    return y;
  };
  EXPECT_THAT(of(ops::Activation::kGeluTanh),
              Pointwise(FloatNear(1e-6f), {-0.158808f, 0.f, 0.841192f, 1.954598f}));
  EXPECT_THAT(of(ops::Activation::kGeluErf),
              Pointwise(FloatNear(1e-6f), {-0.158655f, 0.f, 0.841345f, 1.954500f}));
  EXPECT_THAT(of(ops::Activation::kRelu), ElementsAre(0, 0, 1, 2));
}

TEST(SwiGlu, TakesGatesThenUps) {
  std::vector<float> gate_up = {0, 1, 5, 7}, y(2);
  reference().run(ops::SwiGlu{.gate_up = view(gate_up, {1, 4}), .y = view(y, {1, 2})});
  EXPECT_THAT(y, Pointwise(FloatNear(1e-5f), {0.f, 7 * 0.7310586f}));
}

TEST(SwiGlu, HasGelusGateToo) {
  std::vector<float> gate_up = {0, 1, 5, 7}, y(2);
  reference().run(ops::SwiGlu{
      .gate_up = view(gate_up, {1, 4}), .y = view(y, {1, 2}), .gate = ops::Gate::kGeluTanh});
  EXPECT_THAT(y, Pointwise(FloatNear(1e-5f), {0.f, 7 * 0.841192f}));
}

TEST(SoftCap, IsTheIdentityNearZeroAndTheCapFarOut) {
  std::vector<float> x = {0, 1e-4f, 3 * std::atanh(0.5f), 1e6f, -1e6f};
  reference().run(ops::SoftCap{.x = view(x, {5}), .cap = 3});
  EXPECT_THAT(x, Pointwise(FloatNear(1e-7f), {0.f, 1e-4f, 1.5f, 3.f, -3.f}));
}

TEST(Drop, KeepsWhatTheCounterKeepsAndMakesUpForTheRest) {
  constexpr std::int64_t kCount = 4000;
  std::vector<float> x(kCount, 3.f), y(kCount);
  reference().run(ops::Drop{.dropout = {.probability = 0.25, .seed = 8, .step = 2, .first = 12},
                            .x = view(x, {kCount}),
                            .y = view(y, {kCount})});
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_FLOAT_EQ(y[i], is_kept(8, 2, 12 + i, 0.75) ? 4.f : 0.f);
    sum += static_cast<double>(y[i]);
  }
  EXPECT_NEAR(sum / kCount, 3, 0.1);
}

TEST(Cast, RoundsOnceToTheNearest) {
  // Just above the middle of 1 and the next bf16: as a float it would be the middle, and even.
  std::vector<double> from = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, 1 + 3 * 0x1p-8};
  std::vector<BFloat16> to(3);
  reference().run(ops::Cast{.from = tensor_of(std::span(from)), .to = tensor_of(std::span(to))});
  EXPECT_EQ(to_float(to[0]), 1 + 0x1p-7f);
  EXPECT_EQ(to_float(to[1]), 1.f);
  EXPECT_EQ(to_float(to[2]), 1 + 0x1p-6f);
  std::vector<double> extreme = {1e300, -1e300, 65519.99, 65520, 1e-300, NAN};
  std::vector<Half> halves(6);
  reference().run(
      ops::Cast{.from = tensor_of(std::span(extreme)), .to = tensor_of(std::span(halves))});
  EXPECT_EQ(to_float(halves[0]), INFINITY);
  EXPECT_EQ(to_float(halves[1]), -INFINITY);
  EXPECT_EQ(to_float(halves[2]), 65504.f);
  EXPECT_EQ(to_float(halves[3]), INFINITY);
  EXPECT_EQ(to_float(halves[4]), 0.f);
  EXPECT_TRUE(std::isnan(to_float(halves[5])));
}

TEST(Norm, HasMeanZeroAndDeviationOneBeforeItsGain) {
  std::vector<float> x = {1, 2, 3, 4}, gain = {1, 1, 1, 2}, bias = {0, 0, 0, 5};
  std::vector<float> y(4), mean(1), rstd(1);
  reference().run(ops::Norm{.epsilon = 0,
                            .x = view(x, {1, 4}),
                            .gain = view(gain, {4}),
                            .bias = view(bias, {4}),
                            .y = view(y, {1, 4}),
                            .mean = view(mean, {1}),
                            .rstd = view(rstd, {1})});
  const float unit = 1 / std::sqrt(1.25f);
  EXPECT_THAT(y, Pointwise(FloatNear(1e-6f),
                           {-1.5f * unit, -0.5f * unit, 0.5f * unit, 2 * 1.5f * unit + 5}));
  EXPECT_FLOAT_EQ(mean[0], 2.5f);
  EXPECT_FLOAT_EQ(rstd[0], unit);
}

TEST(Norm, OfTheRootMeanSquareTakesTheBranchIn) {
  std::vector<float> x = {1, 1}, branch = {2, 3}, sum(2), gain = {1, 10}, y(2), rstd(1);
  reference().run(ops::Norm{.kind = ops::NormKind::kRms,
                            .epsilon = 0,
                            .x = view(x, {1, 2}),
                            .branch = view(branch, {1, 2}),
                            .sum = view(sum, {1, 2}),
                            .gain = view(gain, {2}),
                            .y = view(y, {1, 2}),
                            .rstd = view(rstd, {1})});
  const float unit = 1 / std::sqrt(12.5f);
  EXPECT_THAT(sum, ElementsAre(3, 4));
  EXPECT_THAT(y, Pointwise(FloatNear(1e-5f), {3 * unit, 40 * unit}));
}

TEST(Norm, WithGainsAboveOneIsThatOfOneMore) {
  std::vector<float> x = {3, 4}, gain = {0, 9}, y(2), rstd(1);
  reference().run(ops::Norm{.kind = ops::NormKind::kRms,
                            .epsilon = 0,
                            .x = view(x, {1, 2}),
                            .gain = view(gain, {2}),
                            .y = view(y, {1, 2}),
                            .rstd = view(rstd, {1}),
                            .above_one = true});
  const float unit = 1 / std::sqrt(12.5f);
  EXPECT_THAT(y, Pointwise(FloatNear(1e-5f), {3 * unit, 40 * unit}));
}

TEST(Embedding, AddsTokenPositionAndType) {
  std::vector<std::int32_t> tokens = {2, 0, 1, 2}, types = {0, 1, 0, 1};
  std::vector<float> of_token = {1, 2, 3}, of_position = {10, 20}, of_type = {100, 200}, y(4);
  reference().run(ops::Embedding{.tokens = view(tokens),
                                 .types = view(types),
                                 .sequence = 2,
                                 .tokens_table = view(of_token, {3, 1}),
                                 .positions_table = view(of_position, {2, 1}),
                                 .types_table = view(of_type, {2, 1}),
                                 .y = view(y, {4, 1})});
  EXPECT_THAT(y, ElementsAre(113, 221, 112, 223));
}

TEST(Embedding, NamesTheTokenThatIsNotInTheTable) {
  std::vector<std::int32_t> tokens = {0, 3};
  std::vector<float> table = {1, 2, 3}, y = {7, 7};
  const ops::Embedding call{
      .tokens = view(tokens), .tokens_table = view(table, {3, 1}), .y = view(y, {2, 1})};
  try {
    reference().run(call);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "embedding: tokens[1] is 3, expected 0 to 2");
  }
  EXPECT_THAT(y, ElementsAre(7, 7));
}

// Two sequences of one query and two keys; the scores are the keys themselves.
struct SmallAttention {
  std::vector<float> q = {1, 1}, k = {0, std::log(3.f), 5, 9}, v = {8, 4, 6, 2};
  std::vector<std::uint8_t> mask = {1, 1, 1, 0};
  std::vector<float> out = {7, 7}, log_sum = {7, 7}, probabilities = {7, 7, 7, 7};
  float softcap = 0;

  void run(bool causal) {
    reference().run(ops::Attention{.shape = {.batch = 2,
                                             .queries = 1,
                                             .keys = 2,
                                             .heads = 1,
                                             .kv_heads = 1,
                                             .head_size = 1,
                                             .causal = causal},
                                   .softcap = softcap,
                                   .q = {view(q, {2, 1})},
                                   .k = {view(k, {4, 1})},
                                   .v = {view(v, {4, 1})},
                                   .key_mask = tensor_of(std::span(mask), {2, 2}),
                                   .out = view(out, {2, 1}),
                                   .log_sum = view(log_sum, {2, 1, 1}),
                                   .probabilities = view(probabilities, {2, 1, 1, 2})});
  }
};

TEST(Attention, WeighsValuesByTheSoftmaxOfTheScores) {
  SmallAttention attention;
  attention.run(false);
  EXPECT_THAT(attention.probabilities, Pointwise(FloatNear(1e-6f), {0.25f, 0.75f, 1.f, 0.f}));
  EXPECT_THAT(attention.out, Pointwise(FloatNear(1e-6f), {5.f, 6.f}));
  EXPECT_THAT(attention.log_sum, Pointwise(FloatNear(1e-6f), {std::log(4.f), 5.f}));
}

TEST(Attention, CapsScoresBeforeItHidesThem) {
  SmallAttention attention;
  attention.softcap = 2;
  attention.k[1] = 2 * std::atanh(std::log(3.f) / 2);  // capped, the logarithm of 3 again
  attention.run(false);
  EXPECT_THAT(attention.probabilities, Pointwise(FloatNear(1e-6f), {0.25f, 0.75f, 1.f, 0.f}));
  EXPECT_THAT(attention.out, Pointwise(FloatNear(1e-6f), {5.f, 6.f}));
  EXPECT_THAT(attention.log_sum, Pointwise(FloatNear(1e-6f), {std::log(4.f), 2 * std::tanh(2.5f)}));
}

// Places 0 to 2, one head of size 1: scores are biases alone where queries are zero.
TEST(Attention, AddsTheBiasOfTheDistanceToTheKey) {
  std::vector<float> q = {0, 0, 0}, k = {1, 1, 1}, v = {1, 10, 100}, out(3), log_sum(3);
  const float third = std::log(3.0f);
  std::vector<float> bias = {0, 0, third};  // of keys before the query, at it, behind it
  reference().run(ops::Attention{.shape = {.batch = 1,
                                           .queries = 3,
                                           .keys = 3,
                                           .heads = 1,
                                           .kv_heads = 1,
                                           .head_size = 1,
                                           .distances = 3},
                                 .q = {view(q, {3, 1})},
                                 .k = {view(k, {3, 1})},
                                 .v = {view(v, {3, 1})},
                                 .key_mask = {},
                                 .dropout = {},
                                 .out = view(out, {3, 1}),
                                 .log_sum = view(log_sum, {1, 1, 3}),
                                 .probabilities = {},
                                 .bias = view(bias, {1, 3})});
  EXPECT_THAT(out, Pointwise(FloatNear(1e-4f), std::vector<float>{(1 + 3 * 10 + 3 * 100) / 7.0f,
                                                                  (1 + 10 + 3 * 100) / 5.0f, 37}));
}

// What transformers makes of them: T5Attention._relative_position_bucket.
TEST(RelativeBias, HasTheBucketsOfTransformers) {
  const auto buckets = [](const ops::RelativeBuckets& of, std::vector<std::int64_t> distances) {
    std::vector<std::int64_t> found;
    for (const std::int64_t distance : distances) found.push_back(ops::bucket_of(of, distance));
    return found;
  };
  const ops::RelativeBuckets both{.bidirectional = true};
  EXPECT_THAT(buckets(both, {0, -1, -7, -8, -11, -12, -16, -23, -64, -127, -128, -999}),
              ElementsAre(0, 1, 7, 8, 8, 9, 10, 11, 14, 15, 15, 15));
  EXPECT_THAT(buckets(both, {1, 7, 8, 11, 12, 16, 23, 32, 64, 91, 128, 999}),
              ElementsAre(17, 23, 24, 24, 25, 26, 27, 28, 30, 31, 31, 31));
  const ops::RelativeBuckets before{};
  EXPECT_THAT(buckets(before, {1, 0, -1, -15, -16, -18, -19, -32, -64, -113, -128, -999}),
              ElementsAre(0, 0, 1, 15, 16, 16, 17, 21, 26, 31, 31, 31));
  const ops::RelativeBuckets few{.count = 10, .max_distance = 12, .bidirectional = true};
  EXPECT_THAT(buckets(few, {-13, -12, -5, -4, -3, -2, 0, 1, 2, 4, 5, 12}),
              ElementsAre(4, 4, 3, 3, 2, 2, 0, 6, 7, 8, 8, 9));
}

TEST(RelativeBias, ReadsHeadsOfATableAndSumsTheirGradients) {
  std::vector<float> table = {1, 2, 3, 4, 5, 6, 7, 8};  // 4 buckets of 2 heads
  const ops::RelativeBuckets buckets{.count = 4, .max_distance = 3};
  std::vector<float> bias(7);
  reference().run(ops::RelativeBias{.buckets = buckets,
                                    .table = view(table, {4, 2}),
                                    .first_head = 1,
                                    .bias = view(bias, {1, 7})});
  EXPECT_THAT(bias, ElementsAre(8, 6, 4, 2, 2, 2, 2));
  std::vector<float> dbias = {1, 10, 100, 1000, 2000, 3000, 4000}, dtable(8, 0.5f);
  reference().run(ops::RelativeBiasBackward{.buckets = buckets,
                                            .dbias = view(dbias, {1, 7}),
                                            .first_head = 1,
                                            .dtable = view(dtable, {4, 2})});
  EXPECT_THAT(dtable, ElementsAre(0.5f, 10000.5f, 0.5f, 100.5f, 0.5f, 10.5f, 0.5f, 1.5f));
}

TEST(Attention, OfAQueryBehindAllKeysSeesAllOfThem) {
  SmallAttention attention;
  attention.run(true);  // query 0 stands at keys - queries = 1
  EXPECT_THAT(attention.out, Pointwise(FloatNear(1e-6f), {5.f, 6.f}));
}

TEST(Attention, ThatSeesNothingIsZero) {
  SmallAttention attention;
  attention.mask = {0, 0, 1, 1};
  attention.run(false);
  EXPECT_EQ(attention.out[0], 0);
  EXPECT_EQ(attention.log_sum[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(attention.probabilities[0], 0);
}

TEST(Rotary, TurnsThePairsOfAHeadByTheirPosition) {
  std::vector<float> x = {1, 1, 0, 0, 1, 1, 0, 0};  // two places; pairs (0, 2) and (1, 3)
  reference().run(
      ops::Rotary{.x = {view(x, {2, 4})}, .heads = 1, .head_size = 4, .sequence = 2, .theta = 100});
  EXPECT_THAT(x, Pointwise(FloatNear(1e-6f), {1.f, 1.f, 0.f, 0.f, std::cos(1.f), std::cos(0.1f),
                                              std::sin(1.f), std::sin(0.1f)}));
}

TEST(Rotary, TurnsSlowerWhereItIsScaled) {
  std::vector<float> x = {1, 1, 0, 0};
  reference().run(ops::Rotary{.x = {view(x, {1, 4})},
                              .heads = 1,
                              .head_size = 4,
                              .sequence = 1,
                              .first_position = 3,
                              .theta = 100,
                              .scaling = {.factor = 2}});
  EXPECT_THAT(x, Pointwise(FloatNear(1e-6f),
                           {std::cos(1.5f), std::cos(0.15f), std::sin(1.5f), std::sin(0.15f)}));
}

TEST(Rotary, TurnsEachPairSlowerByItsOwnFactorAndMultiplies) {
  std::vector<float> x = {1, 1, 0, 0};
  std::vector<float> slowing = {2, 5};
  ops::Rotary call{.x = {view(x, {1, 4})},
                   .heads = 1,
                   .head_size = 4,
                   .sequence = 1,
                   .first_position = 3,
                   .theta = 100,
                   .slowing = view(slowing, {2}),
                   .amplitude = 3};
  reference().run(call);
  EXPECT_THAT(x, Pointwise(FloatNear(1e-6f), {3 * std::cos(1.5f), 3 * std::cos(0.06f),
                                              3 * std::sin(1.5f), 3 * std::sin(0.06f)}));
  call.slowing = view(slowing, {1, 2});
  EXPECT_THROW(reference().run(call), Error);
}

// By hand: over 62.83 positions a pair of frequency f turns 10 f times.
TEST(Rotary, OfLlama3SlowsDownThePairsThatTurnSeldom) {
  const ops::RotaryScaling scaling = {
      .factor = 4, .original_positions = 62.83185307, .low_turns = 1, .high_turns = 5};
  EXPECT_DOUBLE_EQ(ops::scaled_frequency(1, scaling), 1);
  EXPECT_DOUBLE_EQ(ops::scaled_frequency(0.05, scaling), 0.0125);
  EXPECT_NEAR(ops::scaled_frequency(0.3, scaling), 0.5 * 0.3 + 0.5 * 0.3 / 4, 1e-9);
  EXPECT_NEAR(ops::scaled_frequency(0.2, scaling), 0.25 * 0.2 + 0.75 * 0.2 / 4, 1e-9);
}

TEST(CrossEntropy, OfEqualLogitsIsTheLogOfTheirNumber) {
  std::vector<float> logits = {2, 2, 2, 2, 1, 1, 1, 1}, losses(2);
  std::vector<std::int32_t> targets = {1, ops::kNoTarget};
  reference().run(ops::CrossEntropy{.logits = view(logits, {2, 4}),
                                    .targets = view(targets),
                                    .losses = view(losses, {2}),
                                    .factor = 2});
  EXPECT_THAT(losses, Pointwise(FloatNear(1e-6f), {std::log(4.f), 0.f}));
  EXPECT_THAT(logits, ElementsAre(0.5, -1.5, 0.5, 0.5, 0, 0, 0, 0));
}

TEST(CrossEntropy, RefusesATargetThatIsNoClassBeforeItWrites) {
  std::vector<float> logits = {1, 2}, losses = {7};
  for (const std::int32_t target : {2, -1, -99}) {
    std::vector<std::int32_t> targets = {target};
    EXPECT_THROW(
        reference().run(ops::CrossEntropy{
            .logits = view(logits, {1, 2}), .targets = view(targets), .losses = view(losses, {1})}),
        Error);
  }
  EXPECT_THAT(logits, ElementsAre(1, 2));
  EXPECT_THAT(losses, ElementsAre(7));
}

TEST(SquaredError, SumsOverARow) {
  std::vector<float> x = {1, 2, 5}, target = {0, 4, 5}, losses(1), dx(3);
  reference().run(ops::SquaredError{.x = view(x, {1, 3}),
                                    .target = view(target, {1, 3}),
                                    .losses = view(losses, {1}),
                                    .dx = view(dx, {1, 3}),
                                    .factor = 0.5});
  EXPECT_THAT(losses, ElementsAre(5));
  EXPECT_THAT(dx, ElementsAre(1, -2, 0));
}

struct AdamState {
  std::vector<float> master = {1, 1}, gradient = {0.5f, -3}, first_moment = {0, 0},
                     second_moment = {0, 0};

  ops::Adam call() {
    return {.master = view(master, {2}),
            .gradient = view(gradient, {2}),
            .first_moment = view(first_moment, {2}),
            .second_moment = view(second_moment, {2}),
            .rate = 0.01,
            .epsilon = 0};
  }
};

TEST(Adam, TakesAFirstStepOfItsRateWhateverTheGradient) {
  AdamState state;
  reference().run(state.call());
  EXPECT_THAT(state.master, Pointwise(FloatNear(1e-6f), {0.99f, 1.01f}));
  EXPECT_THAT(state.first_moment, Pointwise(FloatNear(1e-7f), {0.05f, -0.3f}));
  EXPECT_THAT(state.second_moment, Pointwise(FloatNear(1e-8f), {0.00025f, 0.009f}));
}

TEST(Adam, PullsTheMasterDirectlyWhereDecayIsDecoupled) {
  AdamState decoupled, coupled;
  decoupled.gradient = coupled.gradient = {0.5f, 0.5f};
  ops::Adam call = decoupled.call();
  call.decay = 0.1;
  reference().run(call);
  EXPECT_FLOAT_EQ(decoupled.master[0], 0.99f - 0.01f * 0.1f);
  call = coupled.call();
  call.decay = 0.1;
  call.decoupled = false;
  reference().run(call);
  EXPECT_FLOAT_EQ(coupled.master[0], 0.99f);  // the step of a larger gradient is as long
  EXPECT_FLOAT_EQ(coupled.first_moment[0], 0.1f * 0.6f);  // and its first moment is not
}

TEST(Adam, RoundsItsParameterAndScalesTheGradient) {
  AdamState state;
  std::vector<BFloat16> parameter(2);
  ops::Adam call = state.call();
  call.gradient_scale = 2;
  call.parameter = tensor_of(std::span(parameter));
  reference().run(call);
  EXPECT_FLOAT_EQ(state.first_moment[0], 0.1f);
  EXPECT_EQ(parameter[0], to_bfloat16(state.master[0]));
}

TEST(Sgd, GathersVelocity) {
  std::vector<float> master = {1}, gradient = {2}, velocity = {10};
  reference().run(ops::Sgd{.master = view(master, {1}),
                           .gradient = view(gradient, {1}),
                           .velocity = view(velocity, {1}),
                           .rate = 0.1,
                           .momentum = 0.5,
                           .decay = 3,
                           .gradient_scale = 2});
  EXPECT_THAT(velocity, ElementsAre(5 + 4 + 3));
  EXPECT_FLOAT_EQ(master[0], 1 - 0.1f * 12);
}

TEST(SumOfSquares, IsInfiniteOrNanWhereAnElementIs) {
  double result = 0;
  const auto of = [&](std::vector<float> x) {
    reference().run(ops::SumOfSquares{.x = view(x, {static_cast<std::int64_t>(x.size())}),
                                      .result = tensor_of(std::span(&result, 1))});
    return result;
  };
  EXPECT_EQ(of({3, 4}), 25);
  EXPECT_EQ(of({}), 0);
  EXPECT_EQ(of({1, -INFINITY}), INFINITY);
  EXPECT_TRUE(std::isnan(of({1, NAN})));
}

}  // namespace
}  // namespace lockstep::ops_test
