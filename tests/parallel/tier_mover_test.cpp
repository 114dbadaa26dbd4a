// Every model computes the same with everything it can do without on the host.
#include "lockstep/parallel/offload/tier_mover.h"

#include <gtest/gtest.h>

#include "lockstep/parallel/alone.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::parallel::tier_mover_test {
namespace {

using nn::Tiny;

constexpr nn::Tiers kAllOnHost{.optimizer = Tier::kHost,
                               .gradients = Tier::kHost,
                               .parameters = Tier::kHost,
                               .activations = Tier::kHost};

struct Outcome {
  std::vector<double> losses;
  std::vector<float> master;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome train(Tiny tiny, const nn::Setup& setup, const nn::Tiers& tiers, double clip) {
  const auto ops = make_cpu_ops(1);
  nn::Model model = nn::make_tiny(tiny, 0.1);
  nn::MemoryPlan plan =
      nn::plan_memory(model, setup, *ops, nn::OptimizerState::kMoments, {}, tiers);
  MemoryBudget device("device", plan.bytes(Tier::kDevice));
  MemoryBudget host("host", std::max<std::size_t>(plan.bytes(Tier::kHost), 1));
  nn::Replica replica(std::move(model), std::move(plan), *ops,
                      {.seen = {}, .device = &device, .host = &host});
  EXPECT_EQ(device.in_use(), device.limit());
  EXPECT_EQ(host.in_use(), replica.plan().bytes(Tier::kHost));
  replica.initialise(1);
  Alone alone;
  alone.start(replica);
  replica.set_listener(&alone);
  Outcome outcome;
  optim::OptimizerOptions optimizer;
  optimizer.clip = clip;
  for (std::int64_t step = 0; step < 2; ++step) {
    const UpdateRequest request{.optimizer = optimizer, .updates = step, .rate = 1e-2};
    alone.expect_update(request);
    for (std::int64_t i = 0; i < 2; ++i) {
      nn::TinyBatch batch(nn::tiny_batch_shape(tiny), static_cast<std::uint64_t>(i));
      alone.begin_micro_batch(i, 2);
      const Tensor losses =
          replica.forward_backward(batch.batch(), {.step = static_cast<std::uint64_t>(step)});
      ops->synchronize();
      outcome.losses.push_back(nn::sum_of(losses));
    }
    outcome.losses.push_back(alone.update(request).gradient_norm);
  }
  alone.leave();
  const auto master = replica.states().master.as<const float>();
  outcome.master.assign(master.begin(), master.end());
  return outcome;
}

TEST(TierMover, EveryModelTrainsToTheSameBitsFromTheHost) {
  for (const Tiny tiny : nn::kAllTiny) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const nn::Recompute recompute : plan::kAllRecompute) {
        for (const double clip : {0.0, 0.1}) {
          const nn::Setup setup = nn::tiny_setup(tiny, dtype, recompute);
          EXPECT_EQ(train(tiny, setup, kAllOnHost, clip), train(tiny, setup, {}, clip))
              << nn::name(tiny) << " " << name(dtype) << " " << plan::name(recompute);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel::tier_mover_test
