// Models whose parameters the ranks of a tensor group divide: losses and gradients are those of one
// rank with the whole model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/parameters/seed.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kHidden = 96;
constexpr std::int64_t kWide = 50;  // divided unevenly

// Whose tokens 2, 3 and 6 ranks can divide.
BatchShape batch_of(Tiny tiny) {
  return {.batch = 2, .sequence = 9, .source_sequence = has_source(tiny) ? 6 : 0};
}

nn::Setup setup_of(Tiny tiny, DType dtype = DType::kF32, Recompute recompute = Recompute::kNone) {
  return {.shape = batch_of(tiny), .dtype = dtype, .gradient = DType::kF32, .recompute = recompute};
}

Model make_divided(Tiny tiny, const TensorGroup& group, double dropout = 0) {
  ModelOptions options = {
      .dropout = dropout, .epsilon = std::nullopt, .theta = 10000, .tensor = group};
  if (tiny == Tiny::kEncoderDecoder) {
    return make_encoder_decoder({.source_vocabulary = kVocabulary,
                                 .target_vocabulary = kVocabulary,
                                 .shared_vocabulary = true,
                                 .source_positions = 8,
                                 .target_positions = 11,
                                 .hidden = kHidden,
                                 .heads = 12,
                                 .feed_forward = kWide,
                                 .activation = ops::Activation::kGeluTanh,
                                 .encoder_layers = 2,
                                 .decoder_layers = 2},
                                options);
  }
  const bool odd = tiny == Tiny::kOddGpt2 || tiny == Tiny::kOddLlama;
  const plan::Family family = tiny == Tiny::kBert ? plan::Family::kBert
                              : tiny == Tiny::kLlama || tiny == Tiny::kOddLlama
                                  ? plan::Family::kLlama
                              : tiny == Tiny::kMixtral ? plan::Family::kMixtral
                              : tiny == Tiny::kQwen3   ? plan::Family::kQwen3
                              : tiny == Tiny::kGptNeox ? plan::Family::kGptNeox
                              : tiny == Tiny::kGemma2  ? plan::Family::kGemma2
                              : tiny == Tiny::kT5      ? plan::Family::kT5V11
                                                       : plan::Family::kGpt2;
  plan::ModelShape shape = odd ? odd_shape(family) : tiny_shape(family);
  shape.hidden = kHidden;
  shape.heads = 12;
  const bool shared_keys = tiny == Tiny::kLlama || tiny == Tiny::kQwen3 || tiny == Tiny::kGemma2;
  shape.kv_heads = shared_keys ? 6 : 12;
  if (tiny == Tiny::kQwen3) shape.window = 3;
  if (tiny == Tiny::kGemma2) cap_softly(options);
  shape.feed_forward = kWide;
  return make_model(shape, options);
}

// Moves every parameter by a number that depends on its logical position.
void shake_logically(Replica& replica) {
  for (const FlatParameter& parameter : replica.flat().all()) {
    const auto values = FlatParameters::view(replica.states().master, parameter).as<float>();
    const std::uint64_t seed = seed_for(99, parameter.name);
    for_runs(parameter.shape, parameter.shard, 0, values.size(), [&](const ShardRun& run) {
      for (std::size_t i = 0; i < run.elements; ++i) {
        values[run.local + i] += 0.05f * normal_at(seed, 0, run.logical + i);
      }
    });
  }
}

struct Whole {
  std::vector<float> losses, evaluated;
  std::map<std::string, std::vector<float>> parameters, gradients;
};

std::vector<float> floats_of(const Tensor& tensor) {
  const auto values = tensor.as<const float>();
  return {values.begin(), values.end()};
}

const MicroBatch kMicroBatch{.seed = 5, .step = 3, .first_sequence = 8, .loss_factor = 0.125};

Whole of_one_rank(Tiny tiny, Ops& ops) {
  Replica replica = make_replica(make_divided(tiny, {}), setup_of(tiny), ops);
  replica.initialise(7);
  shake_logically(replica);
  TinyBatch batch(batch_of(tiny));
  Whole whole;
  whole.evaluated = floats_of(replica.evaluate(batch.batch()));
  replica.zero_gradients();
  whole.losses = floats_of(replica.forward_backward(batch.batch(), kMicroBatch));
  for (const FlatParameter& parameter : replica.flat().all()) {
    whole.parameters[parameter.name] =
        floats_of(FlatParameters::view(replica.states().master, parameter));
    whole.gradients[parameter.name] =
        floats_of(FlatParameters::view(replica.states().gradients, parameter));
  }
  return whole;
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  return largest;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(double{want[i]}))) << i;
  }
}

// The elements of a shard, at their places in the whole parameter.
void expect_shard(const FlatParameter& parameter, const Tensor& buffer,
                  const std::vector<float>& whole, double tolerance) {
  SCOPED_TRACE(parameter.name);
  const auto mine = FlatParameters::view(buffer, parameter).as<const float>();
  ASSERT_EQ(whole.size(), logical_shape(parameter.shape, parameter.shard).elements());
  const double bound = tolerance * largest_of(whole);
  for_runs(parameter.shape, parameter.shard, 0, mine.size(), [&](const ShardRun& run) {
    for (std::size_t i = 0; i < run.elements; ++i) {
      ASSERT_NEAR(mine[run.local + i], whole[run.logical + i], bound) << run.logical + i;
    }
  });
}

struct Case {
  int ranks = 2;
  Recompute recompute = Recompute::kNone;
  std::string ops = "cpu";
  bool tokens = false;  // are divided
  int chunks = 1;       // of a product whose result is summed

  std::string text() const {
    return std::to_string(ranks) + " ranks, " + ops + ", " + std::string(plan::name(recompute)) +
           (tokens ? ", tokens divided" : "") + ", " + std::to_string(chunks) + " chunks";
  }
  TensorGroup group(int rank) const {
    return {.size = ranks, .rank = rank, .divides_tokens = tokens};
  }
};

void expect_like_one_rank(Tiny tiny, const Case& tested, const Whole& whole) {
  SCOPED_TRACE(name(tiny) + " on " + tested.text());
  run_threads(tested.ranks, [&](Communicator& world) {
    const auto ops = tested.ops == "cpu" ? make_cpu_ops(1) : make_reference_ops();
    TensorAxis axis(world, tested.chunks);
    Replica replica = make_replica(make_divided(tiny, tested.group(world.rank())),
                                   setup_of(tiny, DType::kF32, tested.recompute), *ops);
    replica.set_tensor_axis(&axis);
    replica.initialise(7);
    shake_logically(replica);
    const States& states = replica.states();
    for (const FlatParameter& parameter : replica.flat().all()) {
      expect_shard(parameter, states.master, whole.parameters.at(parameter.name), 0);
    }
    TinyBatch batch(batch_of(tiny));
    expect_near(floats_of(replica.evaluate(batch.batch())), whole.evaluated, 1e-5);
    replica.zero_gradients();
    expect_near(floats_of(replica.forward_backward(batch.batch(), kMicroBatch)), whole.losses,
                1e-5);
    for (const FlatParameter& parameter : replica.flat().all()) {
      expect_shard(parameter, states.gradients, whole.gradients.at(parameter.name), 1e-4);
    }
  });
}

constexpr Tiny kDivisible[] = {Tiny::kGpt2,     Tiny::kOddGpt2, Tiny::kLlama,
                               Tiny::kOddLlama, Tiny::kBert,    Tiny::kEncoderDecoder,
                               Tiny::kMixtral,  Tiny::kQwen3,   Tiny::kGptNeox,
                               Tiny::kGemma2,   Tiny::kT5};

TEST(TensorParallel, LossesAndGradientsAreThoseOfOneRank) {
  for (const Tiny tiny : kDivisible) {
    const auto reference = make_reference_ops();
    const Whole whole = of_one_rank(tiny, *reference);
    for (const bool tokens : {false, true}) {
      for (const int ranks : {2, 3, 6}) {
        expect_like_one_rank(tiny, {.ranks = ranks, .tokens = tokens}, whole);
      }
      expect_like_one_rank(tiny, {.ranks = 2, .ops = "reference", .tokens = tokens}, whole);
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
        expect_like_one_rank(tiny, {.ranks = 3, .recompute = recompute, .tokens = tokens}, whole);
      }
    }
    // Uneven ones, and more of them than rows.
    expect_like_one_rank(tiny, {.ranks = 2, .recompute = Recompute::kFull, .chunks = 4}, whole);
    expect_like_one_rank(tiny, {.ranks = 3, .chunks = 100}, whole);
  }
}

TEST(TensorParallel, SumsThatAreDroppedEndThoseOfOtherRanks) {
  run_threads(2, [&](Communicator& world) {
    const auto ops = make_cpu_ops(1);
    TensorAxis axis(world);
    std::vector<float> values(1000);
    const Tensor x = tensor_of(std::span(values), {1000});
    TensorAxis::Sums sums(axis);
    if (world.rank() == 0) {
      EXPECT_THROW(
          {
            sums.start(*ops, x);
            sums.wait();
            sums.start(*ops, x);
            sums.wait();
          },
          Error);
      return;
    }
    try {
      TensorAxis::Sums dropped(axis);
      dropped.start(*ops, x);
      throw std::runtime_error("a product failed");
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(world.failure().has_value());
    }
  });
}

// Gradients of what is replicated are computed by every rank, and have to stay the same without
// being exchanged.
TEST(TensorParallel, ReplicatedParametersHaveTheSameGradientsOnAllRanks) {
  for (const Tiny tiny : kDivisible) {
    for (const auto& [dropout, tokens] : {std::pair{0.0, false}, {0.2, false}, {0.2, true}}) {
      SCOPED_TRACE(name(tiny) + (tokens ? ", tokens divided" : ""));
      std::mutex mutex;
      std::map<std::string, std::vector<std::byte>> first;
      std::size_t compared = 0;
      run_threads(3, [&](Communicator& world) {
        const auto ops = make_cpu_ops(1);
        TensorAxis axis(world);
        Replica replica = make_replica(
            make_divided(tiny, {.size = 3, .rank = world.rank(), .divides_tokens = tokens},
                         dropout),
            setup_of(tiny, DType::kBF16), *ops);
        replica.set_tensor_axis(&axis);
        replica.initialise(7);
        replica.zero_gradients();
        TinyBatch batch(batch_of(tiny));
        const Tensor losses = replica.forward_backward(batch.batch(), kMicroBatch);
        const std::lock_guard lock(mutex);
        const auto compare = [&](const std::string& what, const Tensor& tensor) {
          const auto [at, is_first] = first.emplace(what, bytes_of(tensor));
          EXPECT_EQ(at->second, bytes_of(tensor)) << what << " of rank " << world.rank();
          if (!is_first) ++compared;
        };
        compare("losses", losses);
        for (const FlatParameter& parameter : replica.flat().all()) {
          if (!parameter.shard.is_replicated()) continue;
          compare(parameter.name, FlatParameters::view(replica.states().gradients, parameter));
        }
      });
      EXPECT_GT(compared, 8u);
    }
  }
}

// Dropout of the stream has the same numbers, however tokens are divided.
TEST(TensorParallel, DividedTokensDropWhatTheWholeStreamDrops) {
  for (const Tiny tiny : {Tiny::kGpt2, Tiny::kBert}) {
    std::map<bool, std::vector<float>> losses;
    for (const bool tokens : {false, true}) {
      run_threads(3, [&](Communicator& world) {
        const auto ops = make_reference_ops();
        TensorAxis axis(world);
        Replica replica = make_replica(
            make_divided(tiny, {.size = 3, .rank = world.rank(), .divides_tokens = tokens}, 0.3),
            setup_of(tiny), *ops);
        replica.set_tensor_axis(&axis);
        replica.initialise(7);
        TinyBatch batch(batch_of(tiny));
        const Tensor result = replica.forward_backward(batch.batch(), kMicroBatch);
        if (world.rank() == 0) losses[tokens] = floats_of(result);
      });
    }
    expect_near(losses[true], losses[false], 1e-5);
  }
}

// What is kept of layers from forward to backward.
TEST(TensorParallel, DividedTokensDivideAllActivations) {
  const auto ops = make_reference_ops();
  const auto kept = [&](const TensorGroup& group) {
    std::size_t bytes = 0;
    const Model model = make_divided(Tiny::kLlama, group);
    const auto specs = specs_of(model, setup_of(Tiny::kLlama), *ops);
    for (std::size_t block = 1; block + 1 < specs.size(); ++block) {
      for (const TensorSpec& tensor : specs[block].tensors) {
        const bool is_kept = tensor.life == Life::kKept || tensor.life == Life::kRestored;
        if (is_kept) bytes += tensor.shape.elements() * size_of(tensor.dtype);
      }
      bytes += model.block(block).output(setup_of(Tiny::kLlama)).elements() * sizeof(float);
    }
    return bytes;
  };
  EXPECT_EQ(kept({.size = 2, .rank = 0, .divides_tokens = true}) * 2, kept({}));
  EXPECT_GT(kept({.size = 2, .rank = 0}) * 2, kept({}));
}

std::uint64_t planned_bytes(const Replica& replica) {
  std::uint64_t bytes = 0;
  for (const BlockSpec& spec : replica.plan().specs) bytes += spec.tensor_bytes;
  return bytes;
}

TEST(TensorParallel, AMicroBatchSendsWhatItsBlocksDeclare) {
  for (const Tiny tiny : kDivisible) {
    for (const bool tokens : {false, true}) {
      for (const Recompute recompute : plan::kAllRecompute) {
        const Case tested{.ranks = 3,
                          .recompute = recompute,
                          .tokens = tokens,
                          .chunks = recompute == Recompute::kFull ? 4 : 1};
        SCOPED_TRACE(name(tiny) + " on " + tested.text());
        run_threads(tested.ranks, [&](Communicator& world) {
          const auto ops = make_cpu_ops(1);
          TensorAxis axis(world, tested.chunks);
          Replica replica = make_replica(make_divided(tiny, tested.group(world.rank())),
                                         setup_of(tiny, DType::kBF16, recompute), *ops);
          replica.set_tensor_axis(&axis);
          replica.initialise(7);
          TinyBatch batch(batch_of(tiny));
          replica.forward_backward(batch.batch(), kMicroBatch);
          EXPECT_EQ(axis.take_cost().bytes_sent, planned_bytes(replica));
          EXPECT_EQ(axis.take_cost().bytes_sent, 0u);
        });
      }
    }
  }
}

// 2(t - 1)/t of [tokens, hidden] for each of four sums of a layer, one of the embedding and one of
// the head.
TEST(TensorParallel, ALayerSumsFourTimes) {
  const auto ops = make_reference_ops();
  constexpr std::uint64_t kRanks = 2;
  const auto tokens = static_cast<std::uint64_t>(batch_of(Tiny::kGpt2).tokens());
  const std::uint64_t sum = 2 * tokens * kHidden * sizeof(float) * (kRanks - 1) / kRanks;
  const std::uint64_t statistics = tokens * ops::kLogitStatistics * sizeof(float);
  const Replica replica = make_replica(make_divided(Tiny::kGpt2, {.size = kRanks, .rank = 0}),
                                       setup_of(Tiny::kGpt2), *ops);
  EXPECT_EQ(planned_bytes(replica), (4 * 2 + 2) * sum + statistics);
  // With divided tokens a product of a layer gathers x twice and scatters dx, or scatters y and
  // gathers dy: five halves of such a sum. And every norm sums its gradients.
  const Replica divided =
      make_replica(make_divided(Tiny::kGpt2, {.size = kRanks, .rank = 0, .divides_tokens = true}),
                   setup_of(Tiny::kGpt2), *ops);
  const std::uint64_t of_norms = 5 * 2 * 2 * kHidden * sizeof(float) * (kRanks - 1) / kRanks;
  EXPECT_EQ(planned_bytes(divided), (5 * 2 + 2) * sum + statistics + of_norms);
}

TEST(TensorParallel, ParametersOfARankAreItsShare) {
  const auto ops = make_reference_ops();
  const nn::Setup setup = setup_of(Tiny::kLlama);
  const auto whole = FlatParameters(make_divided(Tiny::kLlama, {}),
                                    specs_of(make_divided(Tiny::kLlama, {}), setup, *ops));
  std::size_t divided = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Model model = make_divided(Tiny::kLlama, {.size = 3, .rank = rank});
    const FlatParameters flat(model, specs_of(model, setup, *ops));
    for (const FlatParameter& parameter : flat.all()) {
      const FlatParameter& all = whole.find(parameter.name);
      EXPECT_EQ(logical_shape(parameter.shape, parameter.shard), all.shape) << parameter.name;
      if (!parameter.shard.is_replicated()) divided += parameter.shape.elements();
    }
  }
  std::size_t replicated = 0;
  for (const FlatParameter& parameter : whole.all()) {
    if (parameter.name.find("norm") != std::string::npos) replicated += parameter.shape.elements();
  }
  EXPECT_EQ(divided, whole.count() - replicated);
}

TEST(TensorParallel, GroupsThatCannotDivideTheHeadsAreRefused) {
  const auto error_of = [](int ranks) -> std::string {
    try {
      make_divided(Tiny::kLlama, {.size = ranks, .rank = 0});
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(error_of(6), "");
  EXPECT_THAT(error_of(4), HasSubstr("4 ranks cannot divide a model of 12 heads and 6 key and "
                                     "value heads"));
  EXPECT_THAT(error_of(4), HasSubstr("take 1, 2, 3, 6 of them"));
}

TEST(TensorParallel, AReplicaWithoutItsGroupIsRefused) {
  const auto ops = make_reference_ops();
  Replica replica =
      make_replica(make_divided(Tiny::kGpt2, {.size = 2, .rank = 1}), setup_of(Tiny::kGpt2), *ops);
  replica.initialise(7);
  TinyBatch batch(batch_of(Tiny::kGpt2));
  try {
    replica.forward_backward(batch.batch());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("made for a tensor group of 2 ranks"));
  }
}

// Every logical element is in one shard, for odd extents, segments and ranges too.
TEST(TensorShard, RunsCoverTheLogicalParameterOnce) {
  const std::vector<std::vector<std::int64_t>> all_segments = {{7}, {6, 4, 4}, {1, 9}, {12}};
  for (const auto& segments : all_segments) {
    for (const std::size_t dimension : {0, 1, 2}) {
      for (const int ranks : {1, 2, 3, 4}) {
        std::vector<int> seen;
        for (int rank = 0; rank < ranks; ++rank) {
          const TensorGroup group{.size = ranks, .rank = rank};
          std::int64_t own = 0;
          for (const std::int64_t segment : segments) own += share_of(segment, group).count;
          std::vector<std::int64_t> extents = {3, 5, 2};
          extents[dimension] = own;
          const Shape local{std::span<const std::int64_t>(extents)};
          TensorShard shard = shard_of(dimension, segments, group);
          const Shape logical = logical_shape(local, shard);
          seen.resize(logical.elements());
          std::size_t next = 0;
          // In two calls that cut a run.
          const std::size_t cut = local.elements() / 3;
          for (const auto& [first, count] :
               {std::pair{std::size_t{0}, cut}, {cut, local.elements() - cut}}) {
            for_runs(local, shard, first, count, [&](const ShardRun& run) {
              EXPECT_EQ(run.local, next);
              next += run.elements;
              for (std::size_t i = 0; i < run.elements; ++i) ++seen[run.logical + i];
            });
          }
          EXPECT_EQ(next, local.elements());
        }
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1),
                  static_cast<std::ptrdiff_t>(seen.size()));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::nn
