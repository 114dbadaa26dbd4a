// Mixtures whose experts the ranks of an expert group divide: losses, and the sums of gradients
// over the ranks, are those of one rank that has all experts and computes all batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "tests/nn/queued_group.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn::expert_parallel_test {
namespace {

using ::testing::HasSubstr;

// Where the tokens go.
enum class Routing {
  kLearned,   // wherever a router of random weights sends them
  kFirstOnes  // all to the first experts: all logits are equal
};

struct Case {
  int ranks = 2;
  int tensor = 1;
  int experts = 4;
  int chosen = 2;
  Routing routing = Routing::kLearned;
  DType dtype = DType::kF32;
  Recompute recompute = Recompute::kNone;
  std::string ops = "cpu";
  bool tokens = false;  // the tensor group divides them too
  std::int64_t batch = 2;
  std::int64_t sequence = 7;
  double dropout = 0;
  double capacity = 0;
  bool queued = false;  // rows go as they do between GPUs

  std::string text() const {
    return std::to_string(ranks) + " ranks with " + std::to_string(experts) + " experts, " +
           std::to_string(chosen) + " of them chosen, tensor " + std::to_string(tensor) + ", " +
           ops + ", " + std::string(plan::name(recompute)) + ", " +
           std::to_string(batch * sequence) + " tokens" +
           (routing == Routing::kFirstOnes ? " to the first experts" : "") +
           (capacity > 0 ? ", capacity " + std::to_string(capacity) : "");
  }
};

plan::ModelShape shape_of(const Case& tested) {
  plan::ModelShape shape = tiny_shape(plan::Family::kMixtral);
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.experts = static_cast<plan::Count>(tested.experts);
  shape.experts_per_token = static_cast<plan::Count>(tested.chosen);
  return shape;
}

Model make_tested(const Case& tested, const TensorGroup& tensor = {},
                  const ExpertGroup& experts = {}) {
  return make_model(shape_of(tested), {.dropout = tested.dropout,
                                       .epsilon = std::nullopt,
                                       .theta = 10000,
                                       .tensor = tensor,
                                       .experts = experts,
                                       .router_loss = 0.05});
}

Setup setup_of(const Case& tested) {
  return {.shape = {.batch = tested.batch, .sequence = tested.sequence},
          .dtype = tested.dtype,
          .gradient = DType::kF32,
          .expert_capacity = tested.capacity,
          .recompute = tested.recompute};
}

MicroBatch micro_batch_of(const Case& tested, int rank) {
  return {.seed = 5,
          .step = 3,
          .first_sequence = static_cast<std::uint64_t>(tested.batch * rank),
          .loss_factor = 0.125};
}

TinyBatch batch_of(const Case& tested, int rank) {
  return TinyBatch(setup_of(tested).shape, static_cast<std::uint64_t>(10 * rank + 1));
}

std::vector<float> floats_of(const Tensor& tensor) {
  const auto values = tensor.as<const float>();
  return {values.begin(), values.end()};
}

void take_beginnings(Replica& replica, const Case& tested) {
  replica.initialise(7);
  shake(replica, 0.05f);
  if (tested.routing == Routing::kLearned) return;
  for (const FlatParameter& parameter : replica.flat().all()) {
    if (parameter.name.find("router") == std::string::npos) continue;
    fill_zero(FlatParameters::view(replica.states().master, parameter));
  }
}

struct Whole {
  std::vector<std::vector<float>> losses, evaluated;  // of every batch
  std::map<std::string, std::vector<float>> gradients, parameters;
};

Whole of_one_rank(const Case& tested) {
  const auto ops = make_reference_ops();
  Replica replica = make_replica(make_tested(tested), setup_of(tested), *ops);
  take_beginnings(replica, tested);
  Whole whole;
  replica.zero_gradients();
  for (int rank = 0; rank < tested.ranks; ++rank) {
    TinyBatch batch = batch_of(tested, rank);
    whole.evaluated.push_back(floats_of(replica.evaluate(batch.batch())));
    whole.losses.push_back(
        floats_of(replica.forward_backward(batch.batch(), micro_batch_of(tested, rank))));
  }
  for (const FlatParameter& parameter : replica.flat().all()) {
    const States& states = replica.states();
    whole.gradients[parameter.name] = floats_of(FlatParameters::view(states.gradients, parameter));
    whole.parameters[parameter.name] = floats_of(FlatParameters::view(states.master, parameter));
  }
  return whole;
}

void take_parameters(const Whole& whole, Replica& replica) {
  for (const FlatParameter& parameter : replica.flat().all()) {
    const std::vector<float>& from = whole.parameters.at(parameter.name);
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

void expect_gradients(Replica& replica, Communicator& experts, const Whole& whole,
                      double tolerance) {
  std::size_t own = 0;
  for (const FlatParameter& parameter : replica.flat().all()) {
    SCOPED_TRACE(parameter.name);
    std::vector<float> sum = floats_of(FlatParameters::view(replica.states().gradients, parameter));
    // An expert has had the tokens of all ranks.
    const bool is_own = replica.flat().has_experts(parameter.block);
    EXPECT_EQ(is_own, parameter.name.find(".experts.") != std::string::npos);
    own += is_own ? 1 : 0;
    if (!is_own) experts.all_reduce(std::span(sum));
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
  const auto ranks = static_cast<std::size_t>(experts.size());
  std::size_t all = 0;
  for (const auto& [name, values] : whole.gradients) {
    if (name.find(".experts.") != std::string::npos) ++all;
  }
  EXPECT_EQ(own * ranks, all);
}

// f(replica, axis, rank in the expert group) on every rank, each with its own experts.
template <class F>
void on_ranks(const Case& tested, F&& f) {
  run_threads(tested.ranks * tested.tensor, [&](Communicator& world) {
    const int at = world.rank() / tested.tensor;
    const int in_group = world.rank() % tested.tensor;
    const auto ops = tested.ops == "cpu" ? make_cpu_ops(1) : make_reference_ops();
    const auto experts = world.split(in_group, at);
    const auto tensor = world.split(at, in_group);
    const auto messages = world.split(in_group, at);
    QueuedGroup queued(*messages);
    ExpertAxis expert_axis(*experts, tested.queued ? queued : *messages);
    TensorAxis tensor_axis(*tensor);
    Replica replica = make_replica(
        make_tested(tested,
                    {.size = tested.tensor, .rank = in_group, .divides_tokens = tested.tokens},
                    {.size = tested.ranks, .rank = at}),
        setup_of(tested), *ops);
    replica.set_expert_axis(&expert_axis);
    if (tested.tensor > 1) replica.set_tensor_axis(&tensor_axis);
    f(replica, *experts, expert_axis);
  });
}

void expect_like_one_rank(const Case& tested, const Whole& whole) {
  SCOPED_TRACE(tested.text());
  on_ranks(tested, [&](Replica& replica, Communicator& experts, ExpertAxis& axis) {
    const auto at = static_cast<std::size_t>(axis.rank());
    replica.initialise(7);
    take_parameters(whole, replica);
    TinyBatch batch = batch_of(tested, axis.rank());
    expect_near(floats_of(replica.evaluate(batch.batch())), whole.evaluated[at], 1e-5);
    replica.zero_gradients();
    expect_near(
        floats_of(replica.forward_backward(batch.batch(), micro_batch_of(tested, axis.rank()))),
        whole.losses[at], 1e-5);
    expect_gradients(replica, experts, whole, 1e-4);
  });
}

TEST(ExpertParallel, LossesAndGradientsAreThoseOfOneRank) {
  for (const int ranks : {2, 4}) {
    for (const int chosen : {1, 2, 4}) {
      const Case tested{.ranks = ranks, .chosen = chosen};
      expect_like_one_rank(tested, of_one_rank(tested));
    }
  }
  const Case six{.ranks = 3, .experts = 6, .chosen = 3};
  expect_like_one_rank(six, of_one_rank(six));
  const Case reference{.ranks = 2, .ops = "reference"};
  expect_like_one_rank(reference, of_one_rank(reference));
}

TEST(ExpertParallel, RecomputationAndDropoutAreThoseOfOneRank) {
  for (const double dropout : {0.0, 0.2}) {
    const Whole whole = of_one_rank({.dropout = dropout});
    for (const Recompute recompute : plan::kAllRecompute) {
      expect_like_one_rank({.recompute = recompute, .dropout = dropout}, whole);
    }
  }
}

TEST(ExpertParallel, TensorGroupsDivideTheWidthOfExpertsBesides) {
  const Whole whole = of_one_rank({});
  for (const bool tokens : {false, true}) {
    for (const Recompute recompute : plan::kAllRecompute) {
      expect_like_one_rank({.tensor = 2, .recompute = recompute, .tokens = tokens}, whole);
    }
  }
}

// Most experts get none of 40 tokens and some ranks get few.
TEST(ExpertParallel, ExpertsWithoutTokensAreThoseOfOneRank) {
  for (const int ranks : {2, 4, 8}) {
    const Case tested{.ranks = ranks, .experts = 40, .batch = 1, .sequence = 5};
    expect_like_one_rank(tested, of_one_rank(tested));
  }
}

TEST(ExpertParallel, OneTokenIsThatOfOneRank) {
  for (const int ranks : {2, 4}) {
    const Case tested{.ranks = ranks, .experts = 8, .batch = 1, .sequence = 1};
    expect_like_one_rank(tested, of_one_rank(tested));
  }
}

// All to one expert, or to all experts of one rank; the other ranks have nothing to compute.
TEST(ExpertParallel, AllTokensMayGoToOneRank) {
  for (const int chosen : {1, 2}) {
    for (const int ranks : {2, 4}) {
      for (const int tensor : {1, 2}) {
        const Case tested{.ranks = ranks,
                          .tensor = tensor,
                          .experts = 8,
                          .chosen = chosen,
                          .routing = Routing::kFirstOnes};
        expect_like_one_rank(tested, of_one_rank(tested));
      }
    }
  }
}

TEST(ExpertParallel, RecomputationAndQueuedRowsGiveTheSameBits) {
  for (const DType dtype : kComputeTypes) {
    std::vector<std::vector<std::vector<std::byte>>> outcomes;
    for (const Recompute recompute : plan::kAllRecompute) {
      for (const bool queued : {false, true}) {
        const Case tested{.dtype = dtype, .recompute = recompute, .dropout = 0.1, .queued = queued};
        auto& mine = outcomes.emplace_back(2);
        on_ranks(tested, [&](Replica& replica, Communicator&, ExpertAxis& axis) {
          TinyBatch batch = batch_of(tested, axis.rank());
          mine[static_cast<std::size_t>(axis.rank())] =
              outcome_of(replica, batch.batch(), micro_batch_of(tested, axis.rank())).gradients;
        });
        EXPECT_EQ(outcomes.back(), outcomes.front()) << tested.text() << queued;
      }
    }
  }
}

// Experts of the tokens of a rank, where attention adds nothing: a plain loop over embeddings.
std::vector<std::int64_t> routed_to(const Case& tested, Replica& replica, int rank) {
  const auto values = [&](const std::string& name) {
    return floats_of(FlatParameters::view(replica.states().master, replica.flat().find(name)));
  };
  const std::vector<float> table = values("embedding.tokens");
  const std::vector<float> gain = values("layer.0.norm2.gain");
  const std::vector<float> router = values("layer.0.mlp.router.weight");
  const std::size_t hidden = gain.size();
  TinyBatch own = batch_of(tested, rank);
  const Batch batch = own.batch();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(tested.experts));
  for (const std::int32_t token : batch.tokens.as<const std::int32_t>()) {
    std::vector<std::pair<double, std::size_t>> logits;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      double logit = 0;
      for (std::size_t i = 0; i < hidden; ++i) {
        const double x = table[static_cast<std::size_t>(token) * hidden + i];
        logit += x * double{gain[i]} * double{router[e * hidden + i]};
      }
      logits.emplace_back(-logit, e);
    }
    std::ranges::sort(logits);
    for (int k = 0; k < tested.chosen; ++k) ++counts[logits[static_cast<std::size_t>(k)].second];
  }
  return counts;
}

std::int64_t of_rank(const std::vector<std::int64_t>& counts, int rank, int ranks) {
  const auto own = static_cast<std::ptrdiff_t>(counts.size()) / ranks;
  return std::accumulate(counts.begin() + own * rank, counts.begin() + own * (rank + 1),
                         std::int64_t{0});
}

// Rows that leave a rank and rows that come to it, there and back, in forward and in backward.
TEST(ExpertParallel, ARankSendsTheRowsThatItRoutesToOthersAndThoseThatItGetsFromThem) {
  for (const int ranks : {2, 4}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Recompute recompute : plan::kAllRecompute) {
        const Case tested{.ranks = ranks, .experts = 8, .dtype = dtype, .recompute = recompute};
        SCOPED_TRACE(tested.text());
        plan::ModelShape shape = shape_of(tested);
        shape.layers = 1;
        run_threads(ranks, [&](Communicator& world) {
          const auto ops = make_cpu_ops(1);
          ExpertAxis axis(world);
          Replica replica =
              make_replica(make_model(shape, {.experts = {.size = ranks, .rank = world.rank()}}),
                           setup_of(tested), *ops);
          replica.set_expert_axis(&axis);
          replica.initialise(7);
          for (const FlatParameter& parameter : replica.flat().all()) {
            if (parameter.name != "layer.0.attention.projection.weight") continue;
            fill_zero(FlatParameters::view(replica.states().master, parameter));
          }
          replica.round_parameters();
          TinyBatch batch = batch_of(tested, world.rank());
          replica.forward_backward(batch.batch(), micro_batch_of(tested, world.rank()));

          std::int64_t sent = 0, received = 0;
          for (int other = 0; other < ranks; ++other) {
            if (other == world.rank()) continue;
            sent += of_rank(routed_to(tested, replica, world.rank()), other, ranks);
            received += of_rank(routed_to(tested, replica, other), world.rank(), ranks);
          }
          const bool again = recompute != Recompute::kNone;
          const std::int64_t row = 24 * static_cast<std::int64_t>(size_of(dtype));
          const std::int64_t counts = (ranks - 1) * (8 / ranks) * 4;
          EXPECT_GT(sent, 0);
          EXPECT_EQ(static_cast<std::int64_t>(axis.take_cost().bytes_sent),
                    (2 * (sent + received) + (again ? sent : 0)) * row + 4 * (sent + received) +
                        (recompute == Recompute::kFull ? 2 : 1) * counts);
          EXPECT_EQ(axis.take_cost().bytes_sent, 0u);
        });
      }
    }
  }
}

// Rows over the capacity are dropped alike on every mesh.
TEST(ExpertParallel, WithACapacityIsThatOfOneRank) {
  for (const double capacity : {0.3, 0.8, 1.25}) {
    for (const int chosen : {1, 2}) {
      const Case one{.chosen = chosen, .capacity = capacity};
      const Whole whole = of_one_rank(one);
      for (const int tensor : {1, 2}) {
        for (const Recompute recompute : plan::kAllRecompute) {
          expect_like_one_rank({.tensor = tensor,
                                .chosen = chosen,
                                .recompute = recompute,
                                .tokens = tensor == 2,
                                .capacity = capacity},
                               whole);
        }
      }
    }
    const Case first{.ranks = 4, .routing = Routing::kFirstOnes, .capacity = capacity};
    expect_like_one_rank(first, of_one_rank(first));
  }
}

// What the plan states is for experts that are chosen equally often: t k (e - 1)/e rows each way.
TEST(ExpertParallel, ThePlanStatesBytesOfBalancedRouting) {
  const auto ops = make_reference_ops();
  const Case tested{.ranks = 2, .experts = 8};
  const Replica replica =
      make_replica(make_tested(tested, {}, {.size = 2, .rank = 1}), setup_of(tested), *ops);
  std::uint64_t planned = 0;
  for (const BlockSpec& spec : replica.plan().specs) planned += spec.expert_bytes;
  constexpr std::uint64_t kLayers = 2, kRows = 14 * 2 / 2;
  EXPECT_EQ(planned, kLayers * (4 * kRows * 24 * sizeof(float) + 2 * kRows * sizeof(float) +
                                8 * sizeof(std::int32_t) / 2));
}

// Layers of two blocks are two lines, where their halves are alike.
TEST(ExpertParallel, APlanHasALineForEachHalfOfTheLayers) {
  const auto ops = make_reference_ops();
  plan::ModelShape shape = shape_of({});
  shape.layers = 9;
  const Replica replica =
      make_replica(make_model(shape, {.experts = {.size = 2, .rank = 0}}), setup_of({}), *ops);
  std::size_t all = 0, halves = 0;
  for (const ClassLine& line : class_lines(replica.plan())) {
    all += line.bytes();
    if (!line.name.starts_with("activations layer.")) continue;
    halves += line.count;
    const bool first = line.name == "activations layer.0 .. layer.8";
    EXPECT_TRUE(first || line.name == "activations layer.0.mlp .. layer.8.mlp") << line.name;
  }
  EXPECT_EQ(halves, 18u);
  EXPECT_EQ(all, replica.plan().bytes());
}

// Memory is for the rows that all experts of a rank take, not for all that may choose them.
TEST(ExpertParallel, ACapacityBoundsTheMemoryOfRows) {
  const auto ops = make_reference_ops();
  const auto rows_of = [&](double capacity) {
    const Case tested{.ranks = 4, .experts = 8, .capacity = capacity};
    const Replica replica =
        make_replica(make_tested(tested, {}, {.size = 4, .rank = 1}), setup_of(tested), *ops);
    for (const BlockSpec& spec : replica.plan().specs) {
      for (const TensorSpec& tensor : spec.tensors) {
        if (tensor.name == "packed" && spec.experts.size > 1) return tensor.shape[0];
      }
    }
    return std::int64_t{0};
  };
  constexpr std::int64_t kTokens = 14, kRanks = 4, kOwn = 2;
  EXPECT_EQ(rows_of(0), kRanks * kTokens * 2);  // both choices of all tokens of the group
  EXPECT_EQ(rows_of(1), kRanks * kOwn * 4);     // 14 * 2 / 8, rounded up
  EXPECT_EQ(rows_of(2), kRanks * kOwn * 7);
  EXPECT_EQ(rows_of(100), kRanks * kTokens * 2);
}

TEST(ExpertParallel, ModelsThatCannotBeDividedAreRefused) {
  const auto error_of = [](plan::ModelShape shape, int ranks) -> std::string {
    try {
      make_model(shape, {.experts = {.size = ranks, .rank = 0}});
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(error_of(shape_of({.experts = 8}), 4), "");
  EXPECT_THAT(error_of(shape_of({.experts = 8}), 3),
              HasSubstr("parallel.expert is 3, which does not divide 8 experts; 2 and 4 do"));
  EXPECT_THAT(error_of(tiny_shape(plan::Family::kLlama), 2),
              HasSubstr("take model.family = \"mixtral\""));
}

TEST(ExpertParallel, AReplicaWithoutItsGroupIsRefused) {
  const auto ops = make_reference_ops();
  const Case tested;
  Replica replica =
      make_replica(make_tested(tested, {}, {.size = 2, .rank = 1}), setup_of(tested), *ops);
  replica.initialise(7);
  TinyBatch batch = batch_of(tested, 1);
  try {
    replica.forward_backward(batch.batch());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("made for rank 1 of an expert group of 2"));
  }
}

}  // namespace
}  // namespace lockstep::nn::expert_parallel_test
