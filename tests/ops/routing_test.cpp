// Routing by hand: the example of ops/routing.h, equal logits, NaN, and the balancing loss.
#include "lockstep/ops/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/ops.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Routed {
  std::vector<std::int32_t> experts, rows, pairs, counts;
  std::vector<float> weights;
};

class Routing : public ::testing::TestWithParam<const char*> {
 protected:
  Routed route(std::vector<float> logits, std::int64_t experts, std::int64_t chosen) {
    const auto tokens = static_cast<std::int64_t>(logits.size()) / experts;
    const auto pairs = static_cast<std::size_t>(tokens * chosen);
    Routed to{.experts = std::vector<std::int32_t>(pairs),
              .rows = std::vector<std::int32_t>(pairs),
              .pairs = std::vector<std::int32_t>(pairs),
              .counts = std::vector<std::int32_t>(static_cast<std::size_t>(experts)),
              .weights = std::vector<float>(pairs)};
    ops_->run(ops::Route{.logits = tensor_of(std::span(logits), {tokens, experts}),
                         .experts = tensor_of(std::span(to.experts), {tokens, chosen}),
                         .rows = tensor_of(std::span(to.rows), {tokens, chosen}),
                         .pairs = tensor_of(std::span(to.pairs)),
                         .counts = tensor_of(std::span(to.counts)),
                         .weights = tensor_of(std::span(to.weights))});
    return to;
  }

  std::unique_ptr<Ops> ops_ =
      std::string(GetParam()) == "cpu" ? make_cpu_ops(3) : make_reference_ops();
};
INSTANTIATE_TEST_SUITE_P(Ops, Routing, ::testing::Values("reference", "cpu"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(Routing, GroupsPairsByExpert) {
  // a: 0 2   b: 1 0   c: 0 2   d: 2 0
  const Routed to = route({3, 1, 2, 2, 3, 1, 3, 1, 2, 2, 1, 3}, 3, 2);
  EXPECT_THAT(to.experts, ElementsAre(0, 2, 1, 0, 0, 2, 2, 0));
  EXPECT_THAT(to.counts, ElementsAre(4, 1, 3));
  EXPECT_THAT(to.rows, ElementsAre(0, 5, 4, 1, 2, 6, 7, 3));
  EXPECT_THAT(to.pairs, ElementsAre(0, 3, 4, 7, 2, 1, 5, 6));
  const double larger = 1 / (1 + std::exp(-1.0));
  EXPECT_NEAR(to.weights[0], larger, 1e-6);      // a at expert 0
  EXPECT_NEAR(to.weights[5], 1 - larger, 1e-6);  // a at expert 2
  EXPECT_NEAR(to.weights[7], larger, 1e-6);      // d at expert 2
}

TEST_P(Routing, LeavesExpertsWithoutTokens) {
  const Routed to = route({0, 5, 0, 1, 0, 5, 0, 1}, 4, 1);
  EXPECT_THAT(to.counts, ElementsAre(0, 2, 0, 0));
  EXPECT_THAT(to.weights, ElementsAre(1, 1));
}

TEST_P(Routing, TakesTheSmallerNumberOfEqualExpertsAndNaNLast) {
  EXPECT_THAT(route({1, 2, 2, 2}, 4, 2).experts, ElementsAre(1, 2));
  EXPECT_THAT(route({kNaN, 2, kNaN, 1}, 4, 3).experts, ElementsAre(1, 3, 0));
  EXPECT_THAT(route({kNaN, kNaN, kNaN}, 3, 2).experts, ElementsAre(0, 1));
}

// Sum over tokens and experts of balance[e] p[e], by differences in double.
TEST_P(Routing, BalancesBySlopesOfTheSoftmax) {
  constexpr std::size_t kTokens = 5, kExperts = 4;
  std::vector<float> logits, balance, dlogits(kTokens * kExperts);
  for (std::size_t i = 0; i < dlogits.size(); ++i) logits.push_back(normal_at(1, 0, i));
  for (std::size_t e = 0; e < kExperts; ++e) balance.push_back(normal_at(2, 0, e));
  Routed to = route(logits, kExperts, 2);
  std::vector<float> dweights(to.weights.size());
  ops_->run(ops::RouteBackward{.logits = tensor_of(std::span(logits), {kTokens, kExperts}),
                               .experts = tensor_of(std::span(to.experts), {kTokens, 2}),
                               .rows = tensor_of(std::span(to.rows), {kTokens, 2}),
                               .weights = tensor_of(std::span(to.weights)),
                               .dweights = tensor_of(std::span(dweights)),
                               .balance = tensor_of(std::span(balance)),
                               .dlogits = tensor_of(std::span(dlogits), {kTokens, kExperts})});
  const auto loss = [&](std::size_t token, std::size_t moved, double by) {
    double sum = 0, total = 0;
    for (std::size_t e = 0; e < kExperts; ++e) {
      const double p = std::exp(double{logits[token * kExperts + e]} + (e == moved ? by : 0));
      sum += p;
      total += p * double{balance[e]};
    }
    return total / sum;
  };
  for (std::size_t i = 0; i < dlogits.size(); ++i) {
    const std::size_t token = i / kExperts, e = i % kExperts;
    EXPECT_NEAR(dlogits[i], (loss(token, e, 1e-5) - loss(token, e, -1e-5)) / 2e-5, 1e-6) << i;
  }
}

TEST_P(Routing, RefusesRowsThatAreNotThere) {
  std::vector<std::int32_t> rows = {0, 3};
  std::vector<float> routed(6), y(2);
  const ops::CombineTokens call{.rows = tensor_of(std::span(rows), {1, 2}),
                                .weights = {},
                                .routed = tensor_of(std::span(routed), {3, 2}),
                                .residual = {},
                                .y = tensor_of(std::span(y), {1, 2})};
  try {
    ops_->run(call);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("combine_tokens: rows"));
  }
}

}  // namespace
}  // namespace lockstep
