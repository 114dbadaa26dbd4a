// Updates that the host computes during the next step, beside a plain loop that holds an update
// back for a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim/gradient_norm.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/run/thread_runs.h"
#include "tests/train/run/thread_workers.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train::delayed_update_test {
namespace {

using nn::Tiers;
using ::testing::HasSubstr;

constexpr int kSequences = 4;
constexpr int kTokens = 7;
constexpr Tiers kDelayed{.optimizer = Tier::kHost, .delayed_update = true};
constexpr Tiers kGradients{
    .optimizer = Tier::kHost, .gradients = Tier::kHost, .delayed_update = true};
constexpr Tiers kParameters{
    .optimizer = Tier::kHost, .parameters = Tier::kHost, .delayed_update = true};
constexpr Tiers kAll{.optimizer = Tier::kHost,
                     .gradients = Tier::kHost,
                     .parameters = Tier::kHost,
                     .activations = Tier::kHost,
                     .delayed_update = true};

TrainOptions options_of(int micro, const Tiers& tiers) {
  TrainOptions options = tiny_options(plan::Precision::kBf16);
  options.model.layers = 3;
  options.model.dropout = 0.1;
  options.batch = {.sequence = kTokens, .sequences = kSequences, .micro = micro};
  options.optimizer.max_grad_norm = 0;
  options.offload.tiers = tiers;
  return options;
}

struct Gradients {
  Buffer values;
  std::int64_t updates;
};

// One update of all parameters, with gradients that were kept.
void update(nn::Replica& replica, const TrainOptions& options, const Gradients& gradients) {
  const Tensor kept = gradients.values.tensor(
      replica.setup().gradient, {static_cast<std::int64_t>(replica.flat().elements())});
  const optim::UpdateStep step{
      .step = gradients.updates,
      .rate = optim::learning_rate_at(options.schedule, gradients.updates)};
  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    for (const nn::FlatRun& run : replica.flat().runs(block)) {
      const nn::States states = replica.states().slice(run.range);
      optim::update(replica.ops(), options.optimizer, step,
                    {.master = states.master,
                     .gradient = kept.slice(static_cast<std::int64_t>(run.range.first),
                                            static_cast<std::int64_t>(run.range.elements)),
                     .parameter = states.parameters,
                     .first_moment = states.first_moment,
                     .second_moment = states.second_moment,
                     .velocity = states.velocity,
                     .decays = run.decays});
    }
  }
  replica.ops().synchronize();
}

// The oracle. After the steps of `all_updates` no update is held back.
Learned held_back(TrainOptions options, int steps, const std::vector<int>& all_updates) {
  options.offload.tiers = {};
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops);
  nn::Replica& replica = trainer.replica();
  Sequences sequences(kSequences, kTokens);
  const auto batches = sequences.batches(solved(options.batch).micro);
  std::int64_t targets = 0;
  for (const nn::Batch& batch : batches) targets += nn::count_targets(batch);
  Learned learned;
  std::optional<Gradients> held;
  for (int step = 1; step <= steps; ++step) {
    replica.zero_gradients();
    double loss = 0;
    std::uint64_t first = 0;
    for (const nn::Batch& batch : batches) {
      const Tensor losses = replica.forward_backward(
          batch, {.seed = static_cast<std::uint64_t>(options.seed),
                  .step = static_cast<std::uint64_t>(step),
                  .first_sequence = first,
                  .loss_factor = static_cast<float>(1.0 / static_cast<double>(targets))});
      replica.ops().synchronize();
      loss += nn::sum_of(losses);
      first += static_cast<std::uint64_t>(batch.shape.batch);
    }
    learned.losses.push_back(loss / static_cast<double>(targets));
    const Tensor made = replica.states().gradients;
    if (held) update(replica, options, *held);
    held.emplace(Buffer(made.bytes()), step);
    copy(held->values.tensor(made.dtype(), made.shape()), made);
    if (std::ranges::count(all_updates, step) > 0) {
      update(replica, options, *held);
      held.reset();
    }
  }
  if (held) update(replica, options, *held);
  take_states(replica, learned.states);
  return learned;
}

Learned delayed(const TrainOptions& options, int steps, const std::vector<int>& all_updates) {
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops);
  trainer.start();
  Learned learned;
  run_steps(trainer, steps, [&](const StepMetrics& metrics) {
    learned.losses.push_back(metrics.loss);
    if (std::ranges::count(all_updates, metrics.step) > 0) trainer.strategy().collect();
  });
  trainer.strategy().collect();
  take_states(trainer.replica(), learned.states);
  EXPECT_EQ(trainer.device_memory().peak(), trainer.replica().plan().bytes(Tier::kDevice));
  EXPECT_EQ(trainer.host_memory().peak(), trainer.replica().plan().bytes(Tier::kHost));
  return learned;
}

TEST(DelayedUpdate, GivesTheBitsOfAnUpdateHeldBackForAStep) {
  for (const int micro : {1, 2, 4}) {
    for (const Tiers& tiers : {kDelayed, kGradients, kParameters, kAll}) {
      const TrainOptions options = options_of(micro, tiers);
      const Learned got = delayed(options, 8, {});
      EXPECT_EQ(got, held_back(options, 8, {})) << micro << tiers_text(tiers);
      EXPECT_LT(got.losses.back(), got.losses.front());
    }
  }
}

TEST(DelayedUpdate, UsesTheSameParametersForTheFirstTwoSteps) {
  TrainOptions options = options_of(2, kDelayed);
  options.model.dropout = 0;
  const std::vector<double> losses = delayed(options, 4, {}).losses;
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
  EXPECT_NE(losses[2], losses[3]);
}

TEST(DelayedUpdate, IsCompleteInACheckpoint) {
  for (const Tiers& tiers : {kDelayed, kAll}) {
    const TrainOptions options = options_of(2, tiers);
    const Learned got = delayed(options, 8, {3, 4, 7});
    EXPECT_EQ(got, held_back(options, 8, {3, 4, 7})) << tiers_text(tiers);
    EXPECT_NE(got, delayed(options, 8, {})) << tiers_text(tiers);
  }
}

TEST(DelayedUpdate, ClipsByTheNormOfItsOwnStep) {
  TrainOptions options = options_of(2, kDelayed);
  const auto norm_of = [&](double limit) {
    options.optimizer.max_grad_norm = limit;
    const auto ops = make_cpu_ops(1);
    Trainer trainer(options, *ops);
    trainer.start();
    std::vector<double> norms;
    run_steps(trainer, 1,
              [&](const StepMetrics& metrics) { norms.push_back(metrics.gradient_norm); });
    trainer.strategy().collect();
    WholeStates states;
    take_states(trainer.replica(), states);
    return std::pair(norms.front(), states);
  };
  const auto [norm, unclipped] = norm_of(0);
  ASSERT_GT(norm, 0.2);
  const auto [same, clipped] = norm_of(norm / 2);
  EXPECT_EQ(same, norm);
  std::size_t compared = 0;
  for (const auto& [name, values] : unclipped) {
    if (!name.starts_with("moment/")) continue;
    for (std::size_t i = 0; i < values.size(); ++i, ++compared) {
      ASSERT_NEAR(clipped.at(name)[i], values[i] / 2, 1e-6 * std::abs(values[i]) + 1e-12) << name;
    }
  }
  EXPECT_GT(compared, 1000u);
}

TEST(DelayedUpdate, OfAStepThatOverflowsIsNotMade) {
  TrainOptions options = options_of(2, kDelayed);
  options.precision = plan::Precision::kF16;
  options.loss_scale.initial = 1e12;
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops);
  trainer.start();
  WholeStates before;
  take_states(trainer.replica(), before);
  std::int64_t skipped = 0;
  std::vector<double> losses;
  run_steps(trainer, 40, [&](const StepMetrics& metrics) {
    losses.push_back(metrics.loss);
    if (metrics.skipped && trainer.state().updates == 0) {
      trainer.strategy().collect();
      WholeStates now;
      take_states(trainer.replica(), now);
      EXPECT_EQ(now, before);
    }
    skipped += metrics.skipped ? 1 : 0;
  });
  EXPECT_GT(skipped, 2);
  EXPECT_EQ(trainer.state().updates, 40 - skipped);
  EXPECT_LT(losses.back(), losses.front());
}

TEST(DelayedUpdate, IsRefusedWhereItCannotBe) {
  const auto refusal_of = [](const TrainOptions& options) -> std::string {
    try {
      check(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto refusal = [&](const Tiers& tiers, plan::Precision precision, int workers) {
    TrainOptions options = options_of(1, tiers);
    options.precision = precision;
    options.batch.workers = workers;
    return refusal_of(options);
  };
  constexpr auto kBf16 = plan::Precision::kBf16;
  EXPECT_EQ(refusal(kDelayed, kBf16, 1), "");
  EXPECT_THAT(refusal({.delayed_update = true}, kBf16, 1),
              HasSubstr("offload.optimizer = \"host\""));
  Tiers in_file = kDelayed;
  in_file.gradients = Tier::kFile;
  EXPECT_THAT(refusal(in_file, kBf16, 1), HasSubstr("(they are \"host\" and \"file\")"));
  EXPECT_THAT(refusal(kDelayed, plan::Precision::kF32, 1), HasSubstr("use bf16"));
  EXPECT_THAT(refusal(kDelayed, kBf16, 2), HasSubstr("this run has 2"));
  Tiers in_place = kAll;
  in_place.in_place = true;
  EXPECT_THAT(refusal(in_place, kBf16, 1), HasSubstr("leave one of them out"));
  TrainOptions pipeline = options_of(1, kDelayed);
  pipeline.parallel.pipeline = 2;
  EXPECT_THAT(refusal_of(pipeline), HasSubstr("delayed_update = true is not supported with"));
}

class DelayedRun : public ThreadRuns {};

TEST_F(DelayedRun, ContinuesFromACheckpointWithTheBitsOfAnUndisturbedRun) {
  const Settings more = {"train.precision=bf16", "offload.optimizer=host",
                         "offload.delayed_update=true", "checkpoint.every=3"};
  run_ranks(1, small_run("whole", 9, more));
  Settings stops = more;
  stops.push_back("train.steps=6");
  run_ranks(1, small_run("stopped", 9, stops));
  run_ranks(1, small_run("stopped", 9, more));
  EXPECT_EQ(curve("stopped").losses, curve("whole").losses);
  EXPECT_EQ(curve("stopped").norms, curve("whole").norms);
}

}  // namespace
}  // namespace lockstep::train::delayed_update_test
