// Gradients that leave while their block's backward still runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <span>
#include <thread>
#include <utility>

#include "lockstep/base/system/deadline.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

std::vector<Result> train_with_ddp(const Training& training, const Hooks& hooks = {}) {
  ParallelOptions options;
  options.bucket_mb = 0.01;  // three or so of a layer
  options.first_bucket_mb = 0.001;
  return server_test::train_with_ddp(training, options, hooks);
}

// With several workers, whether blocks speak or not.
TEST(EarlyExchange, OfDdpHasTheBitsOfWholeBlocks) {
  for (const int workers : {1, 2, 3, 4}) {
    for (const nn::Tiny model : {nn::Tiny::kGpt2, nn::Tiny::kBert}) {
      for (const nn::Recompute recompute : {nn::Recompute::kNone, nn::Recompute::kFull}) {
        for (const Reduction reduction : {Reduction::kFast, Reduction::kTree}) {
          SCOPED_TRACE(fmt::format("{} workers {} {} {}", workers, nn::name(model),
                                   static_cast<int>(recompute), name(reduction)));
          if (reduction == Reduction::kTree && workers == 3) continue;
          Training training;
          training.workers = workers;
          training.model = model;
          training.recompute = recompute;
          training.reduction = reduction;
          training.micro_batches = 8;  // two or more of each worker
          training.steps = 2;
          training.optimizer.max_grad_norm = 0.5;
          const std::vector<Result> early = train_with_ddp(training);
          training.quiet = true;
          const std::vector<Result> late = train_with_ddp(training);
          for (std::size_t i = 0; i < early.size(); ++i) EXPECT_TRUE(early[i] == late[0]);
        }
      }
    }
  }
}

TEST(EarlyExchange, WithServersHasTheBitsOfOneWorkerForEveryModel) {
  for (const nn::Tiny model : {nn::Tiny::kGpt2, nn::Tiny::kOddGpt2, nn::Tiny::kLlama,
                               nn::Tiny::kOddLlama, nn::Tiny::kBert, nn::Tiny::kEncoderDecoder}) {
    for (const nn::Recompute recompute :
         {nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull}) {
      for (const bool quiet : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", nn::name(model), static_cast<int>(recompute), quiet));
        Training training;
        training.workers = 2;
        training.model = model;
        training.recompute = recompute;
        training.quiet = quiet;
        training.servers.servers = 2;
        training.servers.slice_mb = 0.0005;  // less than a parameter
        training.servers.schedule = quiet ? SliceSchedule::kPriority : SliceSchedule::kWfbp;
        const Result alone = train_alone(training);
        for (const Result& worker : train_with_servers(training)) {
          EXPECT_TRUE(worker.parameters == alone.parameters);
          EXPECT_EQ(worker.losses, alone.losses);
        }
      }
    }
  }
}

// Some elements that others may write to.
class Watched {
 public:
  Watched(const Tensor& buffer, std::size_t first)
      : values_(buffer.slice(static_cast<std::int64_t>(first), kElements).as<const float>()),
        before_(values_.begin(), values_.end()) {}

  // Until one has changed; false where that takes too long.
  bool await_change() const {
    const Deadline until = deadline_in(std::chrono::seconds(20));
    while (!has_changed() && !has_passed(until)) std::this_thread::yield();
    return has_changed();
  }

 private:
  static constexpr std::int64_t kElements = 32;

  // Reads while others write, without synchronisation: there is no other way to see that they have
  // begun. The thread sanitizer is not to report that.
  __attribute__((no_sanitize("thread"))) bool has_changed() const {
    const volatile float* const now = values_.data();
    const float* const before = before_.data();
    for (std::int64_t i = 0; i < kElements; ++i) {
      if (now[i] != before[i]) return true;
    }
    return false;
  }

  std::span<const float> values_;
  std::vector<float> before_;
};

// Forwards all calls.
class Relay : public nn::BlockListener {
 public:
  explicit Relay(Strategy& strategy) : strategy_(strategy) {}

  void before_forward(std::size_t block) override { strategy_.before_forward(block); }
  void after_forward(std::size_t block) override { strategy_.after_forward(block); }
  void before_backward(std::size_t block) override { strategy_.before_backward(block); }
  void after_backward(std::size_t block) override { strategy_.after_backward(block); }
  void finished_up_to(std::size_t block, std::size_t end) override {
    strategy_.finished_up_to(block, end);
  }
  void accumulated(std::size_t block, const nn::FlatRange& range) override {
    strategy_.accumulated(block, range);
  }

 private:
  Strategy& strategy_;
};

// Holds backward up in the middle of a block until the exchange has changed what it was given.
class HoldsUp : public Relay {
 public:
  static constexpr std::size_t kBlock = 1;

  HoldsUp(nn::Replica& replica, Strategy& strategy, Tensor nn::States::*state,
          std::atomic<int>& seen)
      : Relay(strategy), replica_(replica), state_(state), seen_(seen) {}

  void finished_up_to(std::size_t block, std::size_t end) override {
    const nn::FlatRange range = replica_.flat().range(block);
    const bool in_the_middle = block == kBlock && end < range.end();
    if (!in_the_middle || std::exchange(waited_, true)) return Relay::finished_up_to(block, end);
    const Watched first(replica_.states().*state_, range.first);
    Relay::finished_up_to(block, end);
    if (first.await_change()) ++seen_;
  }

 private:
  nn::Replica& replica_;
  Tensor nn::States::*state_;
  std::atomic<int>& seen_;
  bool waited_ = false;
};

Hooks holding_up(Tensor nn::States::*state, std::atomic<int>& seen) {
  return {.listener =
              [state, &seen](nn::Replica& replica, Strategy& strategy) {
                return std::make_unique<HoldsUp>(replica, strategy, state, seen);
              },
          .before_share = {},
          .after_share = {}};
}

TEST(EarlyExchange, OfDdpBeginsInTheMiddleOfABlock) {
  Training training;
  training.workers = 2;
  training.micro_batches = 2;
  training.steps = 1;
  std::atomic<int> seen = 0;
  const std::vector<Result> held_up =
      train_with_ddp(training, holding_up(&nn::States::gradients, seen));
  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(held_up[0] == train_with_ddp(training)[0]);
}

// Holds the backward of logits up until the exchange has changed the first of their gradients.
class HoldsUpLogits : public Relay {
 public:
  HoldsUpLogits(nn::Replica& replica, Strategy& strategy, std::atomic<int>& seen)
      : Relay(strategy), replica_(replica), seen_(seen) {}

  void accumulated(std::size_t block, const nn::FlatRange& range) override {
    if (std::exchange(waited_, true)) return Relay::accumulated(block, range);
    const Watched first(replica_.states().gradients, range.first);
    Relay::accumulated(block, range);
    if (first.await_change()) ++seen_;
  }

 private:
  nn::Replica& replica_;
  std::atomic<int>& seen_;
  bool waited_ = false;
};

// The same as if nothing left early, and one worker's gradients are in the others' before the head
// has ended; with a table that is tied, whose rows follow, and with a head of its own.
TEST(EarlyExchange, OfDdpBeginsInTheMiddleOfTheLogits) {
  for (const auto& [model, workers] :
       {std::pair(nn::Tiny::kGpt2, 2), std::pair(nn::Tiny::kGpt2, 3),
        std::pair(nn::Tiny::kLlama, 2), std::pair(nn::Tiny::kBert, 2)}) {
    SCOPED_TRACE(fmt::format("{} {}", nn::name(model), workers));
    Training training;
    training.workers = workers;
    training.model = model;
    training.wide = true;
    training.micro_batches = workers;
    training.steps = 2;
    std::atomic<int> seen = 0;
    const Hooks hooks{.listener =
                          [&seen](nn::Replica& replica, Strategy& strategy) {
                            return std::make_unique<HoldsUpLogits>(replica, strategy, seen);
                          },
                      .before_share = {},
                      .after_share = {}};
    const std::vector<Result> held_up = train_with_ddp(training, hooks);
    EXPECT_EQ(seen, workers);
    training.quiet = true;
    const std::vector<Result> late = train_with_ddp(training);
    for (std::size_t i = 0; i < late.size(); ++i) EXPECT_TRUE(held_up[i] == late[0]);
    // With several micro-batches of each only the last one's is on its way.
    training.micro_batches = 2 * workers;
    const std::vector<Result> late_twice = train_with_ddp(training);
    training.quiet = false;
    const std::vector<Result> twice = train_with_ddp(training);
    for (std::size_t i = 0; i < twice.size(); ++i) EXPECT_TRUE(twice[i] == late_twice[0]);
  }
}

// Of three workers one has no share of a step: it has to take part in all that the others exchange.
TEST(EarlyExchange, OfDdpWaitsForNobodyWithoutAShare) {
  Training training;
  training.workers = 3;
  training.wide = true;
  training.micro_batches = 2;
  const std::vector<Result> early = train_with_ddp(training);
  training.quiet = true;
  for (const Result& late : train_with_ddp(training)) EXPECT_TRUE(late == early[0]);
  training.quiet = false;
  training.workers = 2;
  EXPECT_TRUE(train_with_ddp(training)[0].losses == early[0].losses);
}

TEST(EarlyExchange, WithServersBringsParametersBackInTheMiddleOfABlock) {
  Training training;
  training.workers = 2;
  training.micro_batches = 2;
  training.steps = 1;
  training.servers.servers = 2;
  training.servers.slice_mb = 0.0005;
  training.servers.schedule = SliceSchedule::kWfbp;
  std::atomic<int> seen = 0;
  const std::vector<Result> held_up =
      train_with_servers(training, holding_up(&nn::States::parameters, seen));
  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(held_up[0].parameters == train_alone(training).parameters);
}

}  // namespace
}  // namespace lockstep::parallel::server_test
