// What is done again to fit a budget is the cheapest there is, and changes no bit.
#include "lockstep/nn/memory/recompute_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

struct Subject {
  Model model;
  Setup setup;
  Sharding sharding;
};

PlanOf plans_of(const Subject& subject, const Ops& ops) {
  return [&](const std::vector<Recompute>& modes) {
    nn::Setup setup = subject.setup;
    setup.recompute_of_blocks = modes;
    return plan_memory(subject.model, setup, ops, OptimizerState::kMoments, subject.sharding);
  };
}

// Every choice there is, with its bytes and what it costs.
struct Tried {
  std::size_t bytes = 0;
  double flops = 0;
};
std::vector<Tried> try_all(std::size_t blocks, const PlanOf& plan_of,
                           std::optional<Tier> tier = std::nullopt) {
  const MemoryPlan none = plan_of(std::vector(blocks, Recompute::kNone));
  std::size_t count = 1;
  for (std::size_t i = 0; i < blocks; ++i) count *= std::size(plan::kAllRecompute);
  std::vector<Tried> all;
  for (std::size_t number = 0; number < count; ++number) {
    std::vector<Recompute> modes;
    for (std::size_t i = 0, rest = number; i < blocks; ++i, rest /= 3) {
      modes.push_back(plan::kAllRecompute[rest % 3]);
    }
    const MemoryPlan plan = plan_of(modes);
    const std::vector<double> costs = recompute_costs(plan, none);
    all.push_back({tier ? plan.bytes(*tier) : plan.bytes(),
                   std::accumulate(costs.begin(), costs.end(), 0.0)});
  }
  return all;
}

// Layers enough that it matters which of them, few enough to try all.
Model layers_of(plan::Family family, plan::Count layers) {
  plan::ModelShape shape = tiny_shape(family);
  shape.layers = layers;
  return make_model(shape);
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const plan::Family family : plan::kAllFamilies) {
    if (plan::parts_of(family).encoder_decoder) continue;
    all.push_back({layers_of(family, 3), tiny_setup(Tiny::kGpt2, DType::kBF16), {}});
    all.back().setup.shape = {.batch = 9, .sequence = 11, .source_sequence = 0};
  }
  for (const bool parameters : {false, true}) {
    all.push_back({layers_of(plan::Family::kGpt2, 3), tiny_setup(Tiny::kGpt2), {}});
    all.back().setup.shape = {.batch = 17, .sequence = 11, .source_sequence = 0};
    all.back().sharding = {.workers = 4,
                           .optimizer = true,
                           .gradients = true,
                           .parameters = parameters,
                           .symmetric = true};
  }
  all.push_back({make_tiny(Tiny::kEncoderDecoder), tiny_setup(Tiny::kEncoderDecoder), {}});
  all.back().setup.shape = {.batch = 7, .sequence = 11, .source_sequence = 8};
  return all;
}

TEST(RecomputeSearch, FindsWhatTryingAllChoicesFinds) {
  const auto ops = make_reference_ops();
  for (const Subject& subject : subjects()) {
    const std::size_t blocks = subject.model.size();
    const PlanOf plan_of = plans_of(subject, *ops);
    const std::vector<Tried> all = try_all(blocks, plan_of);
    const auto [least, most] = std::ranges::minmax(all, {}, &Tried::bytes);
    ASSERT_LT(least.bytes, most.bytes);
    constexpr std::size_t kBudgets = 13;
    for (std::size_t i = 0; i <= kBudgets; ++i) {
      const std::size_t limit = least.bytes + (most.bytes - least.bytes) * i / kBudgets;
      double cheapest = std::numeric_limits<double>::max();
      for (const Tried& one : all) {
        if (one.bytes <= limit) cheapest = std::min(cheapest, one.flops);
      }
      const RecomputeFit found = cheapest_recompute(blocks, plan_of, {.all = limit});
      SCOPED_TRACE(subject.model.name() + ", budget " + std::to_string(i) + ": " +
                   text(found.of_blocks, subject.model));
      EXPECT_TRUE(found.fits);
      EXPECT_EQ(plan_of(found.of_blocks).bytes(), found.bytes);
      EXPECT_LE(found.bytes, limit);
      EXPECT_DOUBLE_EQ(found.flops, cheapest);
    }
    const RecomputeFit nothing = cheapest_recompute(blocks, plan_of, {.all = least.bytes - 1});
    EXPECT_FALSE(nothing.fits);
    EXPECT_EQ(nothing.bytes, least.bytes) << subject.model.name();
  }
}

TEST(RecomputeSearch, NoChoiceIsUnderTheFootprintsBound) {
  const auto ops = make_reference_ops();
  for (const Subject& subject : subjects()) {
    PerMode<MemoryPlan> plans;
    for (const Recompute mode : plan::kAllRecompute) {
      nn::Setup setup = subject.setup;
      setup.recompute = mode;
      const auto plan = [&](Places places) {
        return plan_memory(subject.model, setup, *ops, OptimizerState::kMoments, subject.sharding,
                           {}, places);
      };
      plans[index_of(mode)] = plan(Places::kNone);
      const MemoryPlan with_places = plan(Places::kFound);
      EXPECT_EQ(plans[index_of(mode)].bytes(),
                with_places.layout.lower_bound + with_places.symmetric_layout.lower_bound);
      EXPECT_TRUE(plans[index_of(mode)].layout.offsets.empty());
    }
    const Footprints footprints(plans);
    const auto all = try_all(subject.model.size(), plans_of(subject, *ops));
    EXPECT_LE(footprints.least_alive() + footprints.elsewhere(),
              std::ranges::min(all, {}, &Tried::bytes).bytes)
        << subject.model.name();
    EXPECT_GT(footprints.least_alive(), plans[index_of(Recompute::kFull)].bytes() / 2);
  }
}

TEST(RecomputeSearch, DoesNothingAgainWhereAllFits) {
  const auto ops = make_reference_ops();
  const Subject subject{make_tiny(Tiny::kGpt2), tiny_setup(Tiny::kGpt2), {}};
  int plans = 0;
  const PlanOf plan_of = [&](const std::vector<Recompute>& modes) {
    ++plans;
    return plans_of(subject, *ops)(modes);
  };
  const RecomputeFit found = cheapest_recompute(4, plan_of, {.all = std::size_t{1} << 40});
  EXPECT_EQ(found.of_blocks, std::vector(4, Recompute::kNone));
  EXPECT_EQ(found.flops, 0);
  EXPECT_EQ(plans, 1);
  EXPECT_EQ(text(found.of_blocks, subject.model), "none");
}

TEST(RecomputeSearch, KeepsTheLimitOfTheDeviceWhereMuchLiesOnTheHost) {
  const auto ops = make_reference_ops();
  for (const Tier activations : {Tier::kDevice, Tier::kHost}) {
    const Model model = layers_of(plan::Family::kGpt2, 4);
    nn::Setup setup = tiny_setup(Tiny::kGpt2);
    setup.shape = {.batch = 17, .sequence = 11, .source_sequence = 0};
    const PlanOf plan_of = [&](const std::vector<Recompute>& modes) {
      setup.recompute_of_blocks = modes;
      return plan_memory(model, setup, *ops, OptimizerState::kMoments, {},
                         {.optimizer = Tier::kHost, .activations = activations});
    };
    const std::vector<Tried> all = try_all(model.size(), plan_of, Tier::kDevice);
    const auto [least, most] = std::ranges::minmax(all, {}, &Tried::bytes);
    for (const std::size_t limit : {least.bytes, (least.bytes + most.bytes) / 2, most.bytes - 1}) {
      double cheapest = std::numeric_limits<double>::max();
      for (const Tried& one : all) {
        if (one.bytes <= limit) cheapest = std::min(cheapest, one.flops);
      }
      const RecomputeFit found = cheapest_recompute(model.size(), plan_of, {.device = limit});
      EXPECT_TRUE(found.fits);
      EXPECT_LE(plan_of(found.of_blocks).bytes(Tier::kDevice), limit);
      EXPECT_DOUBLE_EQ(found.flops, cheapest) << name(activations);
    }
  }
}

TEST(RecomputeSearch, BlocksThatDifferInWhatTheyDoAgainHaveTheSameBits) {
  const auto ops = make_cpu_ops(2);
  for (const Tiny tiny : kTransformers) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      TinyBatch batch(tiny_batch_shape(tiny));
      nn::Setup setup = tiny_setup(tiny, dtype);
      Replica none = make_replica(make_tiny(tiny, 0.1), setup, *ops);
      const Outcome expected = outcome_of(none, batch.batch());
      for (std::size_t shift = 0; shift < 3; ++shift) {
        setup.recompute_of_blocks.clear();
        for (std::size_t i = 0; i < none.model().size(); ++i) {
          setup.recompute_of_blocks.push_back(plan::kAllRecompute[(i + shift) % 3]);
        }
        Replica mixed = make_replica(make_tiny(tiny, 0.1), setup, *ops);
        EXPECT_EQ(outcome_of(mixed, batch.batch()), expected) << name(tiny) << " " << shift;
      }
    }
  }
}

TEST(RecomputeSearch, IsToldByTheBlocksThatItIsOf) {
  const Model model = make_tiny(Tiny::kGpt2);
  using enum Recompute;
  EXPECT_EQ(text({kNone, kFull, kFull, kSelective}, model),
            "full in layer.0 .. layer.1, selective in head");
}

TEST(RecomputeSearch, AModeForEveryBlockIsNeeded) {
  const auto ops = make_reference_ops();
  nn::Setup setup = tiny_setup(Tiny::kGpt2);
  setup.recompute_of_blocks = {Recompute::kFull};
  EXPECT_THROW(plan_memory(make_tiny(Tiny::kGpt2), setup, *ops, OptimizerState::kMoments), Error);
}

}  // namespace
}  // namespace lockstep::nn
