// Mixtures of experts: what the sweeps over all models do not show.
#include "lockstep/nn/parts/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "lockstep/nn/parts/row_pieces.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

TEST(RowPieces, CoverAllRowsWithKnownSizes) {
  std::set<std::int64_t> sizes;
  for_piece_sizes(5000, [&](std::int64_t rows) { EXPECT_TRUE(sizes.insert(rows).second); });
  EXPECT_LT(sizes.size(), 50u);
  for (std::int64_t count = 0; count <= 5000; ++count) {
    std::int64_t next = 0, pieces = 0;
    for_pieces(count, [&](std::int64_t first, std::int64_t rows) {
      ASSERT_EQ(first, next);
      ASSERT_TRUE(sizes.contains(rows)) << rows << " of " << count;
      next += rows;
      ++pieces;
    });
    ASSERT_EQ(next, count);
    ASSERT_LE(pieces, 6) << count;
  }
}

// More experts than tokens.
plan::ModelShape many_experts() {
  plan::ModelShape shape = tiny_shape(plan::Family::kMixtral);
  shape.experts = 40;
  return shape;
}

ModelOptions with(double router_loss) {
  ModelOptions options;
  options.router_loss = router_loss;
  return options;
}

Replica one_layer(const plan::ModelShape& shape, double capacity, Ops& ops) {
  Setup setup = tiny_setup(Tiny::kMixtral);
  setup.expert_capacity = capacity;
  Replica replica = make_replica(make_model(shape, with(0)), setup, ops);
  replica.initialise(7);
  shake(replica, 0.1f);
  return replica;
}

void zero_parameters(Replica& replica, std::string_view part_of_name) {
  for (const FlatParameter& parameter : replica.flat().all()) {
    if (parameter.name.find(part_of_name) == std::string::npos) continue;
    fill_zero(FlatParameters::view(replica.states().master, parameter));
  }
}

// All 14 tokens choose expert 0, which takes the first ones: the others are as if it gave zeros.
TEST(Experts, TakeTheFirstTokensUpToTheirCapacity) {
  const auto ops = make_reference_ops();
  plan::ModelShape shape = tiny_shape(plan::Family::kMixtral);
  shape.layers = 1;
  shape.experts_per_token = 1;
  TinyBatch batch(tiny_batch_shape(Tiny::kMixtral));
  const auto losses_of = [&](double capacity, bool gives_zeros) {
    Replica replica = one_layer(shape, capacity, *ops);
    zero_parameters(replica, "router");
    if (gives_zeros) zero_parameters(replica, "experts.0.down");
    const Tensor losses = replica.evaluate(batch.batch());
    const auto values = losses.as<const float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> all = losses_of(0, false), none = losses_of(0, true);
  EXPECT_EQ(losses_of(3, false), all);  // 3 experts: all 14 tokens
  EXPECT_EQ(losses_of(100, false), all);
  for (const auto& [capacity, taken] : {std::pair<double, std::size_t>{0.1, 1}, {1, 5}, {2, 10}}) {
    const std::vector<float> some = losses_of(capacity, false);
    ASSERT_EQ(some.size(), 14u);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i], (i < taken ? all : none)[i]) << i << " with capacity " << capacity;
      differ += all[i] != none[i] ? 1 : 0;
    }
    EXPECT_GT(differ, 8u);
  }
}

// A directional derivative by differences of the loss, where rows of most experts are dropped.
TEST(Experts, WithACapacityHaveTheGradientsOfTheLoss) {
  const auto ops = make_reference_ops();
  for (const double capacity : {0.4, 0.9}) {
    Replica replica = one_layer(tiny_shape(plan::Family::kMixtral), capacity, *ops);
    TinyBatch batch(tiny_batch_shape(Tiny::kMixtral));
    const auto values = replica.states().master.as<float>();
    const std::vector<float> before(values.begin(), values.end());
    constexpr float kStep = 2e-4f;
    const auto loss_at = [&](float distance) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = before[i] + distance * normal_at(3, 0, i);
      }
      replica.zero_gradients();
      return sum_of(replica.forward_backward(batch.batch()));
    };
    const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2.0 * kStep);
    loss_at(0);
    double along = 0;
    const auto gradients = replica.states().gradients.as<const float>();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      along += double{gradients[i]} * normal_at(3, 0, i);
    }
    EXPECT_NEAR(along, difference, 0.01 * std::fabs(difference));
  }
}

TEST(Experts, WithoutTokensHaveNoGradient) {
  const auto ops = make_cpu_ops(2);
  Replica replica = make_replica(make_model(many_experts()), tiny_setup(Tiny::kMixtral), *ops);
  TinyBatch batch(tiny_batch_shape(Tiny::kMixtral));
  const Outcome outcome = outcome_of(replica, batch.batch());
  EXPECT_GT(outcome.loss, 0);
  std::size_t without = 0, with = 0;
  for (const FlatParameter& parameter : replica.flat().all()) {
    if (parameter.name.find(".experts.") == std::string::npos) continue;
    const auto values =
        FlatParameters::view(replica.states().gradients, parameter).as<const float>();
    const bool zero = std::all_of(values.begin(), values.end(), [](float x) { return x == 0; });
    ++(zero ? without : with);
  }
  EXPECT_GT(without, 8u);
  EXPECT_GT(with, 8u);
}

// However many threads compute, and however much is recomputed.
TEST(Experts, HaveTheSameBitsOnAnyNumberOfThreads) {
  for (const DType dtype : kComputeTypes) {
    std::optional<Outcome> first;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const int threads : {1, 2, 5}) {
        const auto ops = make_cpu_ops(threads);
        Replica replica = make_replica(make_model(many_experts(), with(0.1)),
                                       tiny_setup(Tiny::kMixtral, dtype, recompute), *ops);
        TinyBatch batch(tiny_batch_shape(Tiny::kMixtral));
        const Outcome outcome = outcome_of(replica, batch.batch());
        if (!first) first = outcome;
        EXPECT_EQ(outcome, *first) << threads << " threads, " << plan::name(recompute);
      }
    }
  }
}

// The balancing loss moves routers, and through them everything before.
TEST(Experts, AreBalancedByTheRouterLossAlone) {
  const auto ops = make_reference_ops();
  const auto gradients = [&](double router_loss) {
    Replica replica =
        make_replica(make_model(tiny_shape(plan::Family::kMixtral), with(router_loss)),
                     tiny_setup(Tiny::kMixtral), *ops);
    TinyBatch batch(tiny_batch_shape(Tiny::kMixtral));
    const Outcome outcome = outcome_of(replica, batch.batch());
    const auto values = replica.gradient("layer.0.mlp.router.weight").as<const float>();
    return std::pair{outcome.losses, std::vector<float>(values.begin(), values.end())};
  };
  const auto without = gradients(0), some = gradients(0.5), twice = gradients(1);
  EXPECT_EQ(without.first, some.first);  // losses do not contain it
  double largest = 0;
  for (std::size_t i = 0; i < some.second.size(); ++i) {
    const double once = double{some.second[i]} - double{without.second[i]};
    EXPECT_NEAR(double{twice.second[i]} - double{without.second[i]}, 2 * once, 1e-4) << i;
    largest = std::max(largest, std::abs(once));
  }
  EXPECT_GT(largest, 1e-2);
}

}  // namespace
}  // namespace lockstep::nn
