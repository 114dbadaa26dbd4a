// Sequences whose tokens the ranks of a context group divide: losses, and the sums of gradients
// over the ranks, are those of one rank with whole sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn::context_parallel_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSequence = 24;  // in slices of 2, 3 and 4 ranks, and of twice as many
const MicroBatch kMicroBatch{.seed = 5, .step = 3, .first_sequence = 8, .loss_factor = 0.125};

struct Case {
  int ranks = 2;
  int tensor = 1;
  ContextAttention attention = ContextAttention::kHeads;
  DType dtype = DType::kF32;
  Recompute recompute = Recompute::kNone;
  std::string ops = "cpu";
  bool tokens = false;  // the tensor group divides them too
  std::int64_t batch = 2;

  std::string text() const {
    return std::to_string(ranks) + " ranks by " + std::string(nn::name(attention)) + ", tensor " +
           std::to_string(tensor) + ", " + ops + ", " + std::string(plan::name(recompute)) +
           (tokens ? ", tokens divided" : "");
  }
};

bool is_causal(Tiny tiny) { return tiny != Tiny::kBert && !has_source(tiny); }

constexpr std::int64_t kSource = 12;  // of encoder-decoders, which have no ring

BatchShape whole_shape(Tiny tiny, std::int64_t batch) {
  return {.batch = batch, .sequence = kSequence, .source_sequence = has_source(tiny) ? kSource : 0};
}

bool has(Tiny tiny, ContextAttention attention) {
  return !has_source(tiny) || attention == ContextAttention::kHeads;
}

Setup setup_of(Tiny tiny, const Case& tested, int rank) {
  return {.shape = {.batch = tested.batch,
                    .sequence = kSequence / tested.ranks,
                    .source_sequence = whole_shape(tiny, 1).source_sequence / tested.ranks},
          .dtype = tested.dtype,
          .gradient = DType::kF32,
          .context = {.size = tested.ranks,
                      .rank = rank,
                      .attention = tested.attention,
                      .balanced = tested.attention == ContextAttention::kRing && is_causal(tiny)},
          .recompute = tested.recompute};
}

// 24 heads; Llama and the odd GPT-2 with 12 of keys and values.
Model make_tested(Tiny tiny, const TensorGroup& group = {}, double dropout = 0) {
  ModelOptions options = {
      .dropout = dropout, .epsilon = std::nullopt, .theta = 10000, .tensor = group};
  if (tiny == Tiny::kEncoderDecoder) {
    return make_encoder_decoder({.source_vocabulary = kVocabulary,
                                 .target_vocabulary = kVocabulary,
                                 .shared_vocabulary = true,
                                 .source_positions = kSource,
                                 .target_positions = kSequence + 1,
                                 .hidden = 96,
                                 .heads = 24,
                                 .feed_forward = 50,
                                 .activation = ops::Activation::kGeluTanh,
                                 .encoder_layers = 2,
                                 .decoder_layers = 2},
                                options);
  }
  const bool odd = tiny == Tiny::kOddGpt2;
  const plan::Family family = tiny == Tiny::kBert      ? plan::Family::kBert
                              : tiny == Tiny::kLlama   ? plan::Family::kLlama
                              : tiny == Tiny::kMixtral ? plan::Family::kMixtral
                              : tiny == Tiny::kQwen3   ? plan::Family::kQwen3
                              : tiny == Tiny::kGptNeox ? plan::Family::kGptNeox
                              : tiny == Tiny::kGemma2  ? plan::Family::kGemma2
                              : tiny == Tiny::kT5      ? plan::Family::kT5V11
                                                       : plan::Family::kGpt2;
  plan::ModelShape shape = odd ? odd_shape(family) : tiny_shape(family);
  if (tiny == Tiny::kGemma2) {
    cap_softly(options);
    shape.window = 0;  // which a ring does not have
  }
  shape.positions = kSequence + 1;
  shape.hidden = 96;
  shape.heads = tiny == Tiny::kGptNeox ? 12 : 24;  // so that a quarter of a head is a pair
  shape.kv_heads = tiny == Tiny::kLlama || tiny == Tiny::kGptNeox || odd ? 12 : 24;
  return make_model(shape, options);
}

constexpr Tiny kTested[] = {Tiny::kGpt2,           Tiny::kOddGpt2, Tiny::kLlama, Tiny::kBert,
                            Tiny::kEncoderDecoder, Tiny::kMixtral, Tiny::kQwen3, Tiny::kGptNeox,
                            Tiny::kGemma2,         Tiny::kT5};

std::vector<float> floats_of(const Tensor& tensor) {
  const auto values = tensor.as<const float>();
  return {values.begin(), values.end()};
}

// A rank's tokens of a batch, with their memory.
class OwnBatch {
 public:
  OwnBatch(const Batch& whole, const ContextGroup& group) : batch_(whole) {
    batch_.shape.sequence /= group.size;
    batch_.shape.source_sequence /= group.size;
    const Tensor* const from[] = {&whole.tokens, &whole.targets, &whole.types, &whole.source};
    Tensor* const to[] = {&batch_.tokens, &batch_.targets, &batch_.types, &batch_.source};
    for (std::size_t i = 0; i < 4; ++i) {
      if (!ops::is_given(*from[i])) continue;
      const std::int64_t width = from[i]->shape()[1];
      fields_[i].resize(from[i]->elements() / static_cast<std::size_t>(group.size));
      copy_own_tokens(group, from[i]->as<const std::int32_t>(), width, std::span(fields_[i]));
      *to[i] = tensor_of(std::span(fields_[i]), {batch_.shape.batch, width / group.size});
    }
  }
  const Batch& batch() const { return batch_; }

 private:
  std::vector<std::int32_t> fields_[4];
  Batch batch_;
};

struct Whole {
  std::vector<float> losses, evaluated;
  std::map<std::string, std::vector<float>> gradients;
};

Whole of_one_rank(Tiny tiny, std::int64_t batch_size = 2) {
  const auto ops = make_reference_ops();
  const nn::Setup setup = setup_of(tiny, {.ranks = 1, .batch = batch_size}, 0);
  Replica replica = make_replica(make_tested(tiny), setup, *ops);
  replica.initialise(7);
  shake(replica, 0.05f);
  TinyBatch batch(setup.shape);
  Whole whole;
  whole.evaluated = floats_of(replica.evaluate(batch.batch()));
  replica.zero_gradients();
  whole.losses = floats_of(replica.forward_backward(batch.batch(), kMicroBatch));
  for (const FlatParameter& parameter : replica.flat().all()) {
    whole.gradients[parameter.name] =
        floats_of(FlatParameters::view(replica.states().gradients, parameter));
  }
  return whole;
}

// The parameters of the whole model, of which this rank's are shards.
void take_parameters(Tiny tiny, Replica& replica) {
  const auto ops = make_reference_ops();
  Replica whole = make_replica(make_tested(tiny), setup_of(tiny, {.ranks = 1}, 0), *ops);
  whole.initialise(7);
  shake(whole, 0.05f);
  for (const FlatParameter& parameter : replica.flat().all()) {
    const auto from =
        FlatParameters::view(whole.states().master, whole.flat().find(parameter.name)).as<float>();
    const auto to = FlatParameters::view(replica.states().master, parameter).as<float>();
    for_runs(parameter.shape, parameter.shard, 0, to.size(), [&](const ShardRun& run) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(run.logical), run.elements,
                  to.begin() + static_cast<std::ptrdiff_t>(run.local));
    });
  }
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(double{want[i]}))) << i;
  }
}

std::vector<float> own_tokens(const std::vector<float>& whole, const ContextGroup& group) {
  std::vector<float> own(whole.size() / static_cast<std::size_t>(group.size));
  copy_own_tokens(group, std::span(whole), kSequence, std::span(own));
  return own;
}

void expect_gradients(Replica& replica, Communicator& context, const Whole& whole,
                      double tolerance) {
  for (const FlatParameter& parameter : replica.flat().all()) {
    SCOPED_TRACE(parameter.name);
    std::vector<float> sum = floats_of(FlatParameters::view(replica.states().gradients, parameter));
    context.all_reduce(std::span(sum));
    const std::vector<float>& want = whole.gradients.at(parameter.name);
    double largest = 0;
    for (const float value : want) largest = std::max(largest, std::fabs(double{value}));
    for_runs(parameter.shape, parameter.shard, 0, sum.size(), [&](const ShardRun& run) {
      for (std::size_t i = 0; i < run.elements; ++i) {
        ASSERT_NEAR(sum[run.local + i], want[run.logical + i], tolerance * largest)
            << run.logical + i;
      }
    });
  }
}

void expect_like_one_rank(Tiny tiny, const Case& tested, const Whole& whole) {
  SCOPED_TRACE(name(tiny) + " on " + tested.text());
  run_threads(tested.ranks * tested.tensor, [&](Communicator& world) {
    const int at = world.rank() / tested.tensor;
    const int in_group = world.rank() % tested.tensor;
    const auto ops = tested.ops == "cpu" ? make_cpu_ops(1) : make_reference_ops();
    const auto context = world.split(in_group, at);
    const auto tensor = world.split(at, in_group);
    ContextAxis context_axis(*context);
    TensorAxis tensor_axis(*tensor);
    const nn::Setup setup = setup_of(tiny, tested, at);
    Replica replica = make_replica(
        make_tested(tiny,
                    {.size = tested.tensor, .rank = in_group, .divides_tokens = tested.tokens}),
        setup, *ops);
    replica.set_context_axis(&context_axis);
    if (tested.tensor > 1) replica.set_tensor_axis(&tensor_axis);
    replica.initialise(7);
    take_parameters(tiny, replica);
    TinyBatch batch(whole_shape(tiny, tested.batch));
    const OwnBatch own(batch.batch(), setup.context);
    expect_near(floats_of(replica.evaluate(own.batch())),
                own_tokens(whole.evaluated, setup.context), 1e-5);
    replica.zero_gradients();
    expect_near(floats_of(replica.forward_backward(own.batch(), kMicroBatch)),
                own_tokens(whole.losses, setup.context), 1e-5);
    expect_gradients(replica, *context, whole, 1e-4);
  });
}

constexpr ContextAttention kAttentions[] = {ContextAttention::kHeads, ContextAttention::kRing};

TEST(ContextParallel, LossesAndGradientsAreThoseOfOneRank) {
  for (const Tiny tiny : kTested) {
    const Whole whole = of_one_rank(tiny);
    for (const ContextAttention attention : kAttentions) {
      if (!has(tiny, attention)) continue;
      for (const int ranks : {2, 3, 4}) {
        expect_like_one_rank(tiny, {.ranks = ranks, .attention = attention}, whole);
      }
      expect_like_one_rank(tiny, {.ranks = 2, .attention = attention, .ops = "reference"}, whole);
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
        expect_like_one_rank(tiny, {.ranks = 3, .attention = attention, .recompute = recompute},
                             whole);
      }
      const Whole of_one = of_one_rank(tiny, 1);
      expect_like_one_rank(tiny, {.ranks = 4, .attention = attention, .batch = 1}, of_one);
    }
  }
}

TEST(ContextParallel, TensorGroupsDivideHeadsBesides) {
  for (const Tiny tiny : kTested) {
    const Whole whole = of_one_rank(tiny);
    for (const ContextAttention attention : kAttentions) {
      if (!has(tiny, attention)) continue;
      for (const bool tokens : {false, true}) {
        expect_like_one_rank(
            tiny, {.ranks = 2, .tensor = 2, .attention = attention, .tokens = tokens}, whole);
      }
    }
  }
}

std::uint64_t planned_bytes(const Replica& replica) {
  std::uint64_t bytes = 0;
  for (const BlockSpec& spec : replica.plan().specs) bytes += spec.context_bytes;
  return bytes;
}

// Also in types of 2 bytes, and when forward is run again.
TEST(ContextParallel, ARankSendsWhatIsPlanned) {
  for (const Tiny tiny : kTested) {
    for (const ContextAttention attention : kAttentions) {
      if (!has(tiny, attention)) continue;
      for (const Recompute recompute : plan::kAllRecompute) {
        const Case tested{
            .ranks = 3, .attention = attention, .dtype = DType::kBF16, .recompute = recompute};
        SCOPED_TRACE(name(tiny) + " on " + tested.text());
        run_threads(tested.ranks, [&](Communicator& world) {
          const auto ops = make_cpu_ops(1);
          ContextAxis axis(world);
          const nn::Setup setup = setup_of(tiny, tested, world.rank());
          Replica replica = make_replica(make_tested(tiny, {}, 0.1), setup, *ops);
          replica.set_context_axis(&axis);
          replica.initialise(7);
          TinyBatch batch(whole_shape(tiny, tested.batch));
          const OwnBatch own(batch.batch(), setup.context);
          replica.forward_backward(own.batch(), kMicroBatch);
          EXPECT_EQ(axis.take_cost().bytes_sent, planned_bytes(replica));
          EXPECT_EQ(axis.take_cost().bytes_sent, 0u);
        });
      }
    }
  }
}

// Packed rows and attended ones, in forward and in backward; (c - 1)/c of them leave the rank.
TEST(ContextParallel, HeadsSendEightHiddenRowsForEveryTokenOfALayer) {
  const auto ops = make_reference_ops();
  const Case tested{.ranks = 4};
  const Replica replica =
      make_replica(make_tested(Tiny::kGpt2), setup_of(Tiny::kGpt2, tested, 1), *ops);
  constexpr std::uint64_t kLayers = 2;
  constexpr std::uint64_t kTokens = 2 * kSequence / 4;
  EXPECT_EQ(planned_bytes(replica), kLayers * 8 * kTokens * 96 * sizeof(float) * 3 / 4);
}

// Keys and values go around once in forward; in backward once more, and the f32 sums of their
// gradients all the way.
TEST(ContextParallel, ARingSendsKeysAndValuesTwiceAndTheirGradientsOnce) {
  const auto ops = make_reference_ops();
  const Case tested{.ranks = 4, .attention = ContextAttention::kRing, .dtype = DType::kBF16};
  const Replica replica =
      make_replica(make_tested(Tiny::kLlama), setup_of(Tiny::kLlama, tested, 1), *ops);
  constexpr std::uint64_t kLayers = 2;
  constexpr std::uint64_t kElements = 2 * kSequence / 4 * (2 * 12 * 4);  // 12 kv heads of 4
  EXPECT_EQ(planned_bytes(replica), kLayers * kElements * (2 * 3 * 2 + 4 * 4));
}

// Forward and backward drop the same elements, and ranks drop others than each other: the loss is
// that of a function whose gradient backward computes.
TEST(ContextParallel, DropoutIsTheSameInForwardRecomputationAndBackward) {
  for (const ContextAttention attention : kAttentions) {
    std::map<Recompute, std::vector<std::vector<std::byte>>> outcomes;
    for (const Recompute recompute : plan::kAllRecompute) {
      const Case tested{.ranks = 2, .attention = attention, .recompute = recompute};
      outcomes[recompute].resize(2);
      run_threads(2, [&](Communicator& world) {
        const auto ops = make_cpu_ops(1);
        ContextAxis axis(world);
        const nn::Setup setup = setup_of(Tiny::kLlama, tested, world.rank());
        Replica replica = make_replica(make_tested(Tiny::kLlama, {}, 0.2), setup, *ops);
        replica.set_context_axis(&axis);
        TinyBatch batch({.batch = 2, .sequence = kSequence});
        const OwnBatch own(batch.batch(), setup.context);
        const Outcome outcome = outcome_of(replica, own.batch(), kMicroBatch);
        outcomes[recompute][static_cast<std::size_t>(world.rank())] = outcome.gradients;
      });
    }
    EXPECT_EQ(outcomes[Recompute::kNone], outcomes[Recompute::kSelective]);
    EXPECT_EQ(outcomes[Recompute::kNone], outcomes[Recompute::kFull]);
    EXPECT_NE(outcomes[Recompute::kNone][0], outcomes[Recompute::kNone][1]);
  }
}

// A directional derivative by differences of the sum of all ranks' losses, with dropout.
TEST(ContextParallel, GradientsWithDropoutAreThoseOfTheLoss) {
  for (const ContextAttention attention : kAttentions) {
    SCOPED_TRACE(nn::name(attention));
    const Case tested{.ranks = 2, .attention = attention, .ops = "reference"};
    run_threads(2, [&](Communicator& world) {
      const auto ops = make_reference_ops();
      ContextAxis axis(world);
      const nn::Setup setup = setup_of(Tiny::kLlama, tested, world.rank());
      Replica replica = make_replica(make_tested(Tiny::kLlama, {}, 0.2), setup, *ops);
      replica.set_context_axis(&axis);
      TinyBatch batch({.batch = 2, .sequence = kSequence});
      const OwnBatch own(batch.batch(), setup.context);
      const auto values = replica.states().master.as<float>();
      constexpr float kStep = 5e-4f;
      const auto loss_at = [&](float distance) {
        replica.initialise(7);
        shake(replica, 0.05f);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += distance * normal_at(3, 0, i);
        replica.zero_gradients();
        std::vector<double> loss = {sum_of(replica.forward_backward(own.batch(), kMicroBatch))};
        world.all_reduce(std::span(loss));
        return loss[0] * 0.125;
      };
      const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2.0 * kStep);
      loss_at(0);
      std::vector<double> along = {0};
      const auto gradients = replica.states().gradients.as<const float>();
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        along[0] += double{gradients[i]} * normal_at(3, 0, i);
      }
      world.all_reduce(std::span(along));
      EXPECT_NEAR(along[0], difference, 0.01 * std::fabs(difference));
    });
  }
}

TEST(ContextParallel, HeadsThatTheGroupCannotDivideAreRefused) {
  const auto ops = make_reference_ops();
  const auto error_of = [&](int ranks) -> std::string {
    try {
      specs_of(make_tested(Tiny::kLlama), setup_of(Tiny::kLlama, {.ranks = ranks}, 0), *ops);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(error_of(12), "");
  EXPECT_THAT(error_of(8), HasSubstr("24 heads and 12 key and value heads"));
  EXPECT_THAT(error_of(8), HasSubstr("take parallel.context = 1, 2, 3, 4, 6, 12"));
}

TEST(ContextParallel, AReplicaWithoutItsGroupIsRefused) {
  const auto ops = make_reference_ops();
  const nn::Setup setup = setup_of(Tiny::kGpt2, {.ranks = 2}, 1);
  Replica replica = make_replica(make_tested(Tiny::kGpt2), setup, *ops);
  replica.initialise(7);
  TinyBatch batch(setup.shape);
  try {
    replica.forward_backward(batch.batch());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("planned for rank 1 of a context group of 2"));
  }
}

TEST(ContextParallel, AnEncoderDecoderHasNoRing) {
  const auto ops = make_reference_ops();
  const Case tested{.ranks = 2, .attention = ContextAttention::kRing};
  for (const Tiny tiny : {Tiny::kEncoderDecoder, Tiny::kT5}) {
    try {
      specs_of(make_tested(tiny), setup_of(tiny, tested, 0), *ops);
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("take parallel.context_attention = \"heads\""));
    }
  }
}

TEST(ContextSlice, EveryTokenIsOnOneRankAndRunsAscend) {
  for (const bool balanced : {false, true}) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
      const std::int64_t own = 2 * 3;
      std::vector<int> seen(static_cast<std::size_t>(ranks * own));
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t next = 0;
        std::int64_t position = -1;
        for (const TokenRun& run :
             token_runs({.size = ranks, .rank = rank, .balanced = balanced}, own)) {
          EXPECT_EQ(run.local, next);
          EXPECT_GT(run.position, position);
          next += run.count;
          position = run.position + run.count - 1;
          for (std::int64_t i = 0; i < run.count; ++i) {
            ++seen[static_cast<std::size_t>(run.position + i)];
          }
        }
        EXPECT_EQ(next, own);
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(seen.size()));
    }
  }
}

// The pairs of queries and keys that a rank computes differ by less than one slice squared.
TEST(ContextSlice, BalancedRanksSeeEquallyManyKeys) {
  for (const int ranks : {2, 3, 4, 8}) {
    const std::int64_t own = 2 * 5;
    std::vector<std::int64_t> pairs;
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t sum = 0;
      for (const TokenRun& run : token_runs({.size = ranks, .rank = rank, .balanced = true}, own)) {
        for (std::int64_t i = 0; i < run.count; ++i) sum += run.position + i + 1;
      }
      pairs.push_back(sum);
    }
    EXPECT_EQ(*std::max_element(pairs.begin(), pairs.end()),
              *std::min_element(pairs.begin(), pairs.end()));
  }
}

}  // namespace
}  // namespace lockstep::nn::context_parallel_test
