// Running models: recomputation, determinism, micro-batches, evaluation, listeners, refusals.
#include "lockstep/nn/replica/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/nn/blocks/embedding.h"
#include "lockstep/nn/blocks/language_head.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReplicaOnEveryOps : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Ops> ops_ = make_ops(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Replica, ReplicaOnEveryOps, ::testing::ValuesIn(all_ops()),
                         [](const auto& tested) { return tested.param; });

std::string words(Tiny tiny, DType dtype) {
  return name(tiny) + " " + std::string(lockstep::name(dtype));
}

TEST_P(ReplicaOnEveryOps, RecomputationChangesNoBit) {
  for (const Tiny tiny : kAllTiny) {
    for (const DType dtype : kComputeTypes) {
      SCOPED_TRACE(words(tiny, dtype));
      TinyBatch batch(tiny_batch_shape(tiny));
      std::vector<Outcome> outcomes;
      for (const Recompute recompute : plan::kAllRecompute) {
        Replica replica =
            make_replica(make_tiny(tiny, 0.2), tiny_setup(tiny, dtype, recompute), *ops_);
        outcomes.push_back(
            outcome_of(replica, batch.batch(), {.seed = 5, .step = 3, .first_sequence = 8}));
      }
      EXPECT_EQ(outcomes[0], outcomes[1]) << "selective";
      EXPECT_EQ(outcomes[0], outcomes[2]) << "full";
    }
  }
}

TEST_P(ReplicaOnEveryOps, TheSameRunHasTheSameBits) {
  for (const Tiny tiny : kTransformers) {
    TinyBatch batch(tiny_batch_shape(tiny));
    Replica one = make_replica(make_tiny(tiny, 0.1), tiny_setup(tiny, DType::kBF16), *ops_);
    const Outcome first = outcome_of(one, batch.batch());
    EXPECT_EQ(first, outcome_of(one, batch.batch())) << name(tiny) << ", once more";
    const auto others = make_ops(GetParam());
    Replica two = make_replica(make_tiny(tiny, 0.1), tiny_setup(tiny, DType::kBF16), *others);
    EXPECT_EQ(first, outcome_of(two, batch.batch())) << name(tiny) << ", another replica";
  }
}

std::vector<float> gradients_of(const Replica& replica) {
  const Tensor& gradients = replica.states().gradients;
  std::vector<float> values(gradients.elements());
  replica.ops().run(ops::Cast{.from = gradients, .to = tensor_of(std::span(values))});
  replica.ops().synchronize();
  return values;
}

// 1 where they point the same way.
double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double product = 0, square_a = 0, square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    square_a += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    square_b += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return product / std::sqrt(square_a * square_b);
}

TEST_P(ReplicaOnEveryOps, PrecisionsAgreeAsFarAsTheyGo) {
  for (const Tiny tiny : kTransformers) {
    TinyBatch batch(tiny_batch_shape(tiny));
    Replica exact = make_replica(make_tiny(tiny), tiny_setup(tiny), *ops_);
    const double loss = outcome_of(exact, batch.batch()).loss;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const DType gradient : {DType::kF32, dtype}) {
        SCOPED_TRACE(words(tiny, dtype) + ", gradients " + std::string(lockstep::name(gradient)));
        nn::Setup setup = tiny_setup(tiny, dtype);
        setup.gradient = gradient;
        Replica replica = make_replica(make_tiny(tiny), setup, *ops_);
        const double tolerance = dtype == DType::kF16 ? 2e-3 : 2e-2;
        EXPECT_NEAR(outcome_of(replica, batch.batch()).loss / loss, 1, tolerance);
        EXPECT_GT(cosine(gradients_of(exact), gradients_of(replica)), 0.99);
      }
    }
  }
}

TEST_P(ReplicaOnEveryOps, GradientsOfMicroBatchesAddUpToThoseOfTheWhole) {
  const BatchShape whole = {.batch = 4, .sequence = 8, .source_sequence = 4};
  const BatchShape half = {.batch = 2, .sequence = 8, .source_sequence = 4};
  for (const Tiny tiny : {Tiny::kGpt2, Tiny::kBert, Tiny::kEncoderDecoder, Tiny::kT5}) {
    SCOPED_TRACE(name(tiny));
    TinyBatch owner(whole);
    const Batch all = owner.batch();
    nn::Setup setup = tiny_setup(tiny);
    setup.shape = whole;
    Replica together = make_replica(make_tiny(tiny, 0.1), setup, *ops_);
    outcome_of(together, all);
    const Tensor losses = together.forward_backward(all);
    const std::vector<float> want(losses.as<const float>().begin(), losses.as<const float>().end());

    setup.shape = half;
    Replica apart = make_replica(make_tiny(tiny, 0.1), setup, *ops_);
    apart.initialise(7);
    shake(apart, 0.1f);
    std::vector<float> got;
    for (const std::int64_t first : {0, 2}) {
      Batch part;
      part.shape = half;
      part.tokens = all.tokens.slice(first, 2);
      part.targets = all.targets.slice(first, 2);
      part.types = all.types.slice(first, 2);
      part.key_mask = all.key_mask.slice(first, 2);
      part.source = all.source.slice(first, 2);
      part.source_mask = all.source_mask.slice(first, 2);
      const Tensor part_losses =
          apart.forward_backward(part, {.first_sequence = static_cast<std::uint64_t>(first)});
      const auto values = part_losses.as<const float>();
      got.insert(got.end(), values.begin(), values.end());
    }
    // A sequence meets the same dropout wherever it stands.
    for (std::size_t row = 0; row < want.size(); ++row) EXPECT_NEAR(got[row], want[row], 1e-5);
    const auto sum = together.states().gradients.as<const float>();  // of two passes
    const auto parts = apart.states().gradients.as<const float>();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(parts[i], sum[i] / 2, 1e-4 * (1 + std::abs(sum[i]))) << i;
    }
  }
}

TEST_P(ReplicaOnEveryOps, GradientsAreThoseOfTheLossTimesItsFactor) {
  TinyBatch batch(tiny_batch_shape(Tiny::kGpt2));
  Replica replica = make_replica(make_tiny(Tiny::kGpt2), tiny_setup(Tiny::kGpt2), *ops_);
  outcome_of(replica, batch.batch());
  const auto gradients = replica.states().gradients.as<const float>();
  const std::vector<float> whole(gradients.begin(), gradients.end());
  outcome_of(replica, batch.batch(), {.loss_factor = 0.25f});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(gradients[i], whole[i] / 4, 1e-5 * (1 + std::abs(whole[i])));
  }
}

TEST_P(ReplicaOnEveryOps, EvaluationHasTheLossesOfTrainingWithoutDropoutAndGivesLogits) {
  for (const Tiny tiny : kTransformers) {
    for (const Recompute recompute : plan::kAllRecompute) {
      SCOPED_TRACE(name(tiny));
      TinyBatch owner(tiny_batch_shape(tiny));
      Batch batch = owner.batch();
      Replica replica =
          make_replica(make_tiny(tiny), tiny_setup(tiny, DType::kF32, recompute), *ops_);
      const Outcome trained = outcome_of(replica, batch);
      const std::vector<std::byte> gradients = bytes_of(replica.states().gradients);
      EXPECT_EQ(bytes_of(replica.evaluate(batch)), trained.losses);

      const std::int64_t tokens = batch.shape.tokens();
      std::vector<float> logits(static_cast<std::size_t>(tokens * kVocabulary));
      const Tensor view = tensor_of(std::span(logits), {tokens, kVocabulary});
      EXPECT_EQ(bytes_of(replica.evaluate(batch, view)), trained.losses);
      double sum = 0;
      for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int32_t target =
            batch.targets.as<const std::int32_t>()[static_cast<std::size_t>(token)];
        if (target == ops::kNoTarget) continue;
        double exponentials = 0;
        for (const float logit : view.row(token).as<const float>()) exponentials += std::exp(logit);
        sum += std::log(exponentials) -
               static_cast<double>(
                   view.row(token).as<const float>()[static_cast<std::size_t>(target)]);
      }
      EXPECT_NEAR(sum, trained.loss, 1e-4);
      const std::vector<float> with_targets = logits;
      batch.targets = batch.outputs = {};
      EXPECT_EQ(replica.evaluate(batch, view).elements(), 0u);
      EXPECT_EQ(logits, with_targets);
      EXPECT_EQ(bytes_of(replica.states().gradients), gradients) << "evaluation has no gradients";
    }
  }
}

TEST_P(ReplicaOnEveryOps, DropoutDependsOnSeedStepAndSequence) {
  TinyBatch batch(tiny_batch_shape(Tiny::kGpt2));
  Replica replica = make_replica(make_tiny(Tiny::kGpt2, 0.3), tiny_setup(Tiny::kGpt2), *ops_);
  const Outcome base = outcome_of(replica, batch.batch(), {.seed = 1, .step = 1});
  EXPECT_EQ(base, outcome_of(replica, batch.batch(), {.seed = 1, .step = 1}));
  EXPECT_NE(base, outcome_of(replica, batch.batch(), {.seed = 2, .step = 1}));
  EXPECT_NE(base, outcome_of(replica, batch.batch(), {.seed = 1, .step = 2}));
  EXPECT_NE(base, outcome_of(replica, batch.batch(), {.seed = 1, .step = 1, .first_sequence = 2}));
}

// Adam over every run, as an optimizer does it.
void adam(Replica& replica, std::int64_t step, double rate) {
  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    for (const FlatRun& run : replica.flat().runs(block)) {
      const States states = replica.states().slice(run.range);
      const bool has_master = states.master.data() != states.parameters.data();
      replica.ops().run(ops::Adam{.master = states.master,
                                  .gradient = states.gradients,
                                  .first_moment = states.first_moment,
                                  .second_moment = states.second_moment,
                                  .parameter = has_master ? states.parameters : Tensor(),
                                  .rate = rate,
                                  .decay = run.decays ? 0.01 : 0,
                                  .step = step});
    }
  }
}

TEST_P(ReplicaOnEveryOps, EveryModelLearnsABatchByHeartInEveryPrecision) {
  for (const Tiny tiny : kTransformers) {
    for (const DType dtype : kComputeTypes) {
      SCOPED_TRACE(words(tiny, dtype));
      TinyBatch owner(tiny_batch_shape(tiny));
      const Batch batch = owner.batch();
      Replica replica = make_replica(make_tiny(tiny), tiny_setup(tiny, dtype), *ops_);
      replica.initialise(11);
      const auto targets = static_cast<float>(count_targets(batch));
      double first = 0;
      double last = 0;
      const std::int64_t steps = tiny == Tiny::kGemma2 ? 60 : 30;  // capped logits grow slowly
      for (std::int64_t step = 1; step <= steps; ++step) {
        replica.zero_gradients();
        const Tensor losses = replica.forward_backward(
            batch, {.step = static_cast<std::uint64_t>(step), .loss_factor = 1 / targets});
        replica.ops().synchronize();
        last = sum_of(losses) / static_cast<double>(targets);
        if (step == 1) first = last;
        adam(replica, step, 1e-2);
      }
      EXPECT_NEAR(first, std::log(static_cast<double>(kVocabulary)), has_source(tiny) ? 2 : 0.3);
      EXPECT_LT(last, 0.3);
      for (const FlatParameter& parameter : replica.flat().all()) {
        const auto master = replica.states().master.as<const float>();
        const std::size_t end = parameter.offset + parameter.shape.elements();
        for (std::size_t i = end; i % FlatParameters::kAlignment != 0; ++i) EXPECT_EQ(master[i], 0);
      }
    }
  }
}

TEST_P(ReplicaOnEveryOps, ChunksOfLogitsChangeNothing) {
  const BatchShape shape = {.batch = 13, .sequence = 10, .source_sequence = 0};
  TinyBatch batch(shape);
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  for (const std::int64_t chunk_bytes : {kLogitBytes, std::int64_t{1}}) {
    std::vector<std::unique_ptr<Block>> blocks;
    blocks.push_back(std::make_unique<Embedding>(
        "embedding", EmbeddingOptions{.vocabulary = kVocabulary, .positions = 10, .hidden = 8}));
    blocks.push_back(std::make_unique<LanguageHead>(
        "head", NormOptions{.width = 8},
        ClassifierOptions{
            .hidden = 8, .classes = kVocabulary, .bias = true, .chunk_bytes = chunk_bytes}));
    nn::Setup setup;
    setup.shape = shape;
    Replica replica = make_replica(Model("chunks", std::move(blocks)), setup, *ops_);
    losses.push_back(outcome_of(replica, batch.batch()).loss);
    const auto values = replica.states().gradients.as<const float>();
    gradients.emplace_back(values.begin(), values.end());
  }
  EXPECT_EQ(rows_per_chunk(130, kVocabulary, DType::kF32, kLogitBytes), 130);
  EXPECT_EQ(rows_per_chunk(130, kVocabulary, DType::kF32, 1), 48);
  EXPECT_EQ(rows_per_chunk(4096, 50257, DType::kBF16, kLogitBytes), 320);
  EXPECT_NEAR(losses[0], losses[1], 1e-4);
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    ASSERT_NEAR(gradients[0][i], gradients[1][i], 1e-5 * (1 + std::abs(gradients[0][i])));
  }
}

TEST(Replica, BeginsWithTheSameParametersOnAnyNumberOfThreads) {
  const auto ops = make_reference_ops();
  plan::ModelShape shape = tiny_shape(plan::Family::kGpt2);
  shape.vocabulary = 5003;
  Replica replica = make_replica(make_model(shape), tiny_setup(Tiny::kGpt2, DType::kBF16), *ops);
  replica.initialise(3, 1);
  const std::vector<std::byte> parameters = bytes_of(replica.states().parameters);
  const std::vector<std::byte> master = bytes_of(replica.states().master);
  replica.initialise(3, 3);
  EXPECT_EQ(bytes_of(replica.states().parameters), parameters);
  EXPECT_EQ(bytes_of(replica.states().master), master);
  replica.initialise(4);
  EXPECT_NE(bytes_of(replica.states().parameters), parameters);
}

TEST(Replica, BeginsWithTheParametersThatItsModelAsksFor) {
  const auto ops = make_reference_ops();
  plan::ModelShape shape = tiny_shape(plan::Family::kGpt2);
  shape.hidden = 96;
  Replica replica = make_replica(make_model(shape), tiny_setup(Tiny::kGpt2), *ops);
  replica.initialise(3);
  const auto stddev = [&](const char* name) {
    double square = 0;
    const auto values = replica.parameter(name).as<const float>();
    for (const float value : values) square += static_cast<double>(value) * value;
    return std::sqrt(square / static_cast<double>(values.size()));
  };
  EXPECT_NEAR(stddev("embedding.tokens"), 0.02, 1e-3);
  EXPECT_NEAR(stddev("layer.0.attention.qkv.weight"), 0.02, 1e-3);
  EXPECT_NEAR(stddev("layer.0.attention.projection.weight"), 0.02 / 2, 5e-4);  // sqrt(2 l) = 2
  EXPECT_NEAR(stddev("layer.1.mlp.down.weight"), 0.02 / 2, 5e-4);
  EXPECT_EQ(stddev("layer.1.mlp.down.bias"), 0);
  EXPECT_EQ(stddev("layer.1.norm1.gain"), 1);
  EXPECT_NE(bytes_of(replica.parameter("layer.0.mlp.up.weight")),
            bytes_of(replica.parameter("layer.1.mlp.up.weight")));
}

TEST(Replica, TellsAListenerOfEveryBlock) {
  class Writes : public BlockListener {
   public:
    void before_forward(std::size_t block) override { add("f", block); }
    void after_forward(std::size_t block) override { add("F", block); }
    void before_backward(std::size_t block) override { add("b", block); }
    void after_backward(std::size_t block) override { add("B", block); }
    std::vector<std::string> events;

   private:
    void add(const char* what, std::size_t block) {
      events.push_back(what + std::to_string(block));
    }
  };
  const auto ops = make_reference_ops();
  TinyBatch batch(tiny_batch_shape(Tiny::kGpt2));
  Replica replica = make_replica(make_tiny(Tiny::kGpt2),
                                 tiny_setup(Tiny::kGpt2, DType::kF32, Recompute::kFull), *ops);
  replica.initialise(1);
  Writes writes;
  replica.set_listener(&writes);
  replica.forward_backward(batch.batch());
  EXPECT_THAT(writes.events, ElementsAre("f0", "F0", "f1", "F1", "f2", "F2", "f3", "F3", "b3", "B3",
                                         "b2", "B2", "b1", "B1", "b0", "B0"));
  writes.events.clear();
  replica.evaluate(batch.batch());
  EXPECT_THAT(writes.events, ElementsAre("f0", "F0", "f1", "F1", "f2", "F2", "f3", "F3"));
  replica.set_listener(nullptr);
  replica.evaluate(batch.batch());
}

TEST(Replica, RefusesBatchesThatAreNotItsOwn) {
  const auto ops = make_reference_ops();
  const auto refusal = [&](Tiny tiny, auto spoil) -> std::string {
    TinyBatch owner(tiny_batch_shape(tiny));
    Batch batch = owner.batch();
    spoil(batch);
    Replica replica = make_replica(make_tiny(tiny), tiny_setup(tiny), *ops);
    replica.initialise(1);
    try {
      replica.forward_backward(batch);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(refusal(Tiny::kGpt2, [](Batch&) {}), "nothing was thrown");
  EXPECT_THAT(refusal(Tiny::kGpt2, [](Batch& batch) { batch.shape.sequence = 6; }),
              HasSubstr("2 sequences of 6 tokens"));
  EXPECT_THAT(refusal(Tiny::kGpt2, [](Batch& batch) { batch.tokens = {}; }),
              HasSubstr("block 'embedding' needs the batch's tokens, i32 [2, 7]"));
  EXPECT_THAT(refusal(Tiny::kGpt2, [](Batch& batch) { batch.targets = {}; }),
              HasSubstr("block 'head' needs the batch's targets"));
  EXPECT_THAT(refusal(Tiny::kGpt2, [](Batch& batch) { batch.targets = batch.targets.slice(0, 1); }),
              HasSubstr("got i32 [1, 7]"));
  EXPECT_THAT(refusal(Tiny::kGpt2, [](Batch& batch) { batch.tokens = batch.key_mask; }),
              HasSubstr("got u8 [2, 7]"));
  EXPECT_THAT(
      refusal(Tiny::kGpt2, [](Batch& batch) { batch.tokens.as<std::int32_t>()[3] = kVocabulary; }),
      HasSubstr("37"));
  EXPECT_THAT(refusal(Tiny::kBert, [](Batch& batch) { batch.types = {}; }), HasSubstr("types"));
  EXPECT_THAT(refusal(Tiny::kEncoderDecoder, [](Batch& batch) { batch.source = {}; }),
              HasSubstr("block 'source' needs the batch's source"));
  EXPECT_THAT(refusal(Tiny::kLinear, [](Batch& batch) { batch.outputs = {}; }),
              HasSubstr("outputs"));
}

TEST(Replica, RefusesAPlanOfAnotherModel) {
  const auto ops = make_reference_ops();
  MemoryPlan plan =
      plan_memory(make_tiny(Tiny::kGpt2), tiny_setup(Tiny::kGpt2), *ops, OptimizerState::kMoments);
  EXPECT_THROW(Replica(make_tiny(Tiny::kBert), std::move(plan), *ops), Error);
}

TEST(Models, RefuseHeadsThatTheirFamilyCannotBeTrainedWith) {
  plan::ModelShape bert = plan::find_model("bert-base");
  EXPECT_THROW(make_model(bert), Error);
  EXPECT_EQ(trainable(bert).head, plan::Head::kMaskedLanguage);
  plan::ModelShape gpt2 = plan::find_model("gpt2-124m");
  EXPECT_EQ(trainable(gpt2).head, plan::Head::kTied);
  gpt2.head = plan::Head::kMaskedLanguage;
  EXPECT_THROW(make_model(gpt2), Error);
}

}  // namespace
}  // namespace lockstep::nn
