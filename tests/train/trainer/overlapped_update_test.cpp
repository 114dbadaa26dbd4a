// An update on the host during the next step's first forward, beside one that is awaited.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "lockstep/nn/replica/state_reader.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::overlapped_update_test {
namespace {

using nn::Tiers;

constexpr Tier kHost = Tier::kHost;
constexpr int kSteps = 5;

TrainOptions options_of(plan::Precision precision, const Tiers& tiers) {
  TrainOptions options = tiny_options(precision);
  options.model.layers = 4;
  options.model.dropout = 0.1;
  options.batch = {.sequence = 7, .sequences = 4, .micro = 2};
  options.optimizer.max_grad_norm = 0.5;
  options.offload.tiers = tiers;
  return options;
}

std::vector<Tiers> all_tiers() {
  Tiers in_place{.optimizer = kHost, .gradients = kHost, .parameters = kHost};
  in_place.in_place = true;
  return {{.optimizer = kHost},
          {.optimizer = kHost, .gradients = kHost},
          {.optimizer = kHost, .parameters = kHost},
          {.optimizer = kHost, .activations = kHost},
          {.optimizer = kHost, .gradients = kHost, .parameters = kHost, .activations = kHost},
          in_place};
}

// see(trainer) after every step.
Learned train(const TrainOptions& options, bool overlaps,
              const std::function<void(Trainer&)>& see = {}) {
  Learned learned;
  run_workers(options, [&](Trainer& trainer, Communicator*) {
    trainer.set_overlaps_update(overlaps);
    trainer.start();
    run_steps(trainer, kSteps, [&](const StepMetrics& metrics) {
      learned.losses.push_back(metrics.loss);
      learned.norms.push_back(metrics.gradient_norm);
      if (see) see(trainer);
    });
    take_states(trainer.replica(), learned.states);
    EXPECT_EQ(trainer.device_memory().peak(), trainer.replica().plan().bytes(Tier::kDevice));
    EXPECT_EQ(trainer.host_memory().peak(), trainer.replica().plan().bytes(Tier::kHost));
  });
  return learned;
}

TEST(OverlappedUpdate, ChangesNoBit) {
  for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
    for (const auto recompute : {RecomputeChoice::kNone, RecomputeChoice::kFull}) {
      TrainOptions options = options_of(precision, {});
      options.recompute = recompute;
      const Learned alone = train(options, false);
      EXPECT_LT(alone.losses.back(), alone.losses.front());
      for (const Tiers& tiers : all_tiers()) {
        options.offload.tiers = tiers;
        EXPECT_EQ(train(options, true), alone) << plan::name(precision) << " " << tiers_text(tiers);
      }
    }
  }
}

TEST(OverlappedUpdate, ChangesNoBitOfAnyOptimizerWindowAndSum) {
  for (const auto kind : {optim::OptimizerKind::kAdam, optim::OptimizerKind::kSgd}) {
    for (const auto reduction : {parallel::Reduction::kFast, parallel::Reduction::kTree}) {
      TrainOptions options = options_of(plan::Precision::kBf16, {});
      options.optimizer.kind = kind;
      options.parallel.reduction = reduction;
      const Learned alone = train(options, false);
      for (const int most : {1, 2, 5}) {
        options.parallel.max_unsharded_blocks = most;
        options.offload.tiers = {.optimizer = kHost, .parameters = kHost};
        EXPECT_EQ(train(options, true), alone) << most;
        options.offload.tiers = {};
      }
    }
  }
}

TEST(OverlappedUpdate, IsCompleteForWhoeverReadsStatesBetweenSteps) {
  const auto states_after_each = [](bool overlaps, const Tiers& tiers) {
    std::vector<WholeStates> all;
    train(options_of(plan::Precision::kBf16, tiers), overlaps,
          [&](Trainer& trainer) { take_states(trainer.replica(), all.emplace_back()); });
    return all;
  };
  const auto alone = states_after_each(false, {});
  EXPECT_NE(alone[0], alone[1]);
  for (const Tiers& tiers : all_tiers()) {
    EXPECT_EQ(states_after_each(true, tiers), alone) << tiers_text(tiers);
  }
}

TEST(OverlappedUpdate, IsCompleteInACheckpoint) {
  const TrainOptions options = options_of(plan::Precision::kBf16, {.optimizer = kHost});
  std::vector<WholeStates> collected, awaited;
  // A saver collects, and reads through a reference that it has from the start.
  nn::Replica* kept = nullptr;
  const Learned overlapped = train(options, true, [&](Trainer& trainer) {
    if (kept == nullptr) kept = &trainer.replica();
    trainer.strategy().collect();
    take_states(*kept, collected.emplace_back());
  });
  const Learned prompt = train(options, false, [&](Trainer& trainer) {
    take_states(trainer.replica(), awaited.emplace_back());
  });
  EXPECT_EQ(collected, awaited);
  EXPECT_EQ(overlapped, prompt);
}

TEST(OverlappedUpdate, OfAStepThatOverflowsIsNotMade) {
  TrainOptions options = options_of(plan::Precision::kF16, {.optimizer = kHost});
  options.loss_scale.initial = 1e12;
  const auto skips = [&](bool overlaps) {
    std::vector<bool> skipped;
    const auto ops = make_cpu_ops(1);
    Trainer trainer(options, *ops);
    trainer.set_overlaps_update(overlaps);
    trainer.start();
    run_steps(trainer, 40, [&](const StepMetrics& metrics) { skipped.push_back(metrics.skipped); });
    WholeStates states;
    take_states(trainer.replica(), states);
    return std::pair(skipped, states);
  };
  const auto overlapped = skips(true);
  EXPECT_GT(std::ranges::count(overlapped.first, true), 2);
  EXPECT_LT(std::ranges::count(overlapped.first, true), 40);
  EXPECT_EQ(overlapped, skips(false));
}

// Holds the update of a block back until a forward has begun.
class Gate : public nn::StateReader, public nn::BlockListener {
 public:
  Gate(nn::BlockListener& inner, std::size_t held) : inner_(inner), held_(held) {}

  void before_change(std::size_t block) override {
    std::unique_lock lock(mutex_);
    begun_ = block + 1;
    if (block != held_) return;
    constexpr std::chrono::seconds kFar{60};
    in_time_ = changed_.wait_for(lock, kFar, [&] { return forwards_ > 0 || is_open_; }) && in_time_;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void before_forward(std::size_t block) override {
    inner_.before_forward(block);
    const std::lock_guard lock(mutex_);
    if (updates_ && begun_ < block + 1) in_order_ = false;
  }
  void after_forward(std::size_t block) override {
    inner_.after_forward(block);
    const std::lock_guard lock(mutex_);
    ++forwards_;
    changed_.notify_all();
  }
  void before_backward(std::size_t block) override {
    inner_.before_backward(block);
    const std::lock_guard lock(mutex_);
    forwards_ = 0;
  }
  void after_backward(std::size_t block) override {
    inner_.after_backward(block);
    const std::lock_guard lock(mutex_);
    if (block == 0) begun_ = 0;
    updates_ = true;
  }

  bool in_time() const { return in_time_; }
  bool in_order() const { return in_order_; }

 private:
  nn::BlockListener& inner_;
  const std::size_t held_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t begun_ = 0;  // blocks of this update
  std::size_t forwards_ = 0;
  bool updates_ = false;
  bool is_open_ = false;
  bool in_time_ = true;
  bool in_order_ = true;
};

// The last block is updated only when a forward has run: without overlap that would never come.
TEST(OverlappedUpdate, RunsBesideTheNextForward) {
  TrainOptions options = options_of(plan::Precision::kBf16, {.optimizer = kHost});
  options.batch.micro = 4;
  const Learned prompt = train(options, false);
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops);
  trainer.set_overlaps_update(true);
  trainer.start();
  nn::Replica& replica = trainer.replica();
  Gate gate(trainer.strategy(), replica.flat().blocks() - 2);
  replica.set_listener(&gate);
  replica.set_reader(&gate);
  std::vector<double> losses;
  run_steps(trainer, kSteps, [&](const StepMetrics& metrics) { losses.push_back(metrics.loss); });
  gate.open();  // no forward follows
  trainer.strategy().finish_update();
  EXPECT_TRUE(gate.in_time());
  EXPECT_TRUE(gate.in_order());
  EXPECT_EQ(losses, prompt.losses);
  replica.set_reader(nullptr);
  replica.set_listener(&trainer.strategy());
}

}  // namespace
}  // namespace lockstep::train::overlapped_update_test
