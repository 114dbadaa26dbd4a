// Optimizer's states that lie in a file train to the same bits, and are saved and restored from
// there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::file_tier_test {
namespace {

using parallel::Reduction;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSequences = 4;
constexpr int kTokens = 7;

struct Result {
  std::vector<double> losses;
  std::vector<double> norms;
  WholeStates states;
  friend bool operator==(const Result&, const Result&) = default;
};

class FileTier : public ::testing::Test {
 protected:
  TrainOptions options_of(plan::Precision precision = plan::Precision::kBf16) const {
    TrainOptions options = tiny_options(precision);
    options.batch = {.sequence = kTokens, .sequences = kSequences, .micro = 1};
    options.parallel.reduction = Reduction::kTree;
    options.model.dropout = 0.1;
    options.threads = 1;
    options.offload.folder = scratch_.path().string();
    return options;
  }
  static TrainOptions filed(TrainOptions options, bool overlaps = true) {
    options.offload.tiers.optimizer = Tier::kFile;
    options.offload.tiers.overlaps = overlaps;
    return options;
  }

  static TrainOptions all_filed(TrainOptions options) {
    options = filed(options);
    options.offload.tiers.parameters = Tier::kFile;
    return options;
  }

  struct Plan {
    bool restores = false;
    int steps = 2;
    bool saves = false;
  };
  Result train(TrainOptions options, int workers, const Plan& plan) const {
    options.batch.workers = workers;
    Result result;
    std::mutex mutex;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      RunGroup group(others);
      CheckpointFolder folder(scratch_.path() / "run");
      const bool by_all = trainer.replica().plan().sharding.any();
      if (plan.restores) {
        std::optional<TrainState> state;
        if (by_all) {
          state = folder.restore(trainer.replica(), {}, group);
        } else {
          if (group.leads()) state = folder.restore(trainer.replica(), {});
          state = group.from_leader(state);
        }
        trainer.set_state(state.value());
      }
      trainer.start();
      Result mine;
      steps(trainer, plan.steps, mine);
      const CheckpointExtras extras{.state = trainer.state(), .config = "", .tokenizer = ""};
      if (plan.saves && by_all) folder.save_by_all(trainer.replica(), extras, {}, group);
      if (plan.saves && !by_all && group.leads()) folder.save(trainer.replica(), extras, {});
      group.barrier();
      EXPECT_EQ(trainer.device_memory().peak(), trainer.replica().plan().bytes(Tier::kDevice));
      EXPECT_EQ(trainer.host_memory().peak(), trainer.replica().plan().bytes(Tier::kHost));
      const std::lock_guard lock(mutex);
      result.losses = mine.losses;
      result.norms = mine.norms;
      take_states(trainer.replica(), result.states);
    });
    return result;
  }
  Result train(const TrainOptions& options, int workers) const {
    return train(options, workers, {});
  }

  static void steps(Trainer& trainer, int count, Result& result) {
    run_steps(trainer, count, [&](const StepMetrics& metrics) {
      result.losses.push_back(metrics.loss);
      result.norms.push_back(metrics.gradient_norm);
    });
  }

  ScratchFolder scratch_;
};

TEST_F(FileTier, ChangesNoBitInAnyPrecision) {
  for (const auto precision : plan::kAllPrecisions) {
    for (const auto kind : {optim::OptimizerKind::kAdamW, optim::OptimizerKind::kSgd}) {
      TrainOptions options = options_of(precision);
      options.optimizer.kind = kind;
      const Result without = train(options, 1);
      EXPECT_EQ(train(filed(options), 1), without) << plan::name(precision);
      EXPECT_EQ(train(filed(options, false), 1), without) << plan::name(precision);
      EXPECT_EQ(train(all_filed(options), 1), without) << plan::name(precision);
      EXPECT_EQ(train(all_filed(options), 2), without) << plan::name(precision);
    }
  }
}

TEST_F(FileTier, ChangesNoBitAtAnyStage) {
  const Result without = train(options_of(), 1);
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto partition : {nn::Partition::kTensor, nn::Partition::kLayer}) {
      TrainOptions options = filed(options_of());
      options.parallel.zero = stage;
      options.parallel.partition = partition;
      EXPECT_EQ(train(options, 2), without) << stage;
    }
  }
}

// Without clipping, updates run beside backward.
TEST_F(FileTier, ChangesNoBitOfUpdatesBesideBackward) {
  TrainOptions options = options_of();
  options.optimizer.max_grad_norm = 0;
  const Result without = train(options, 1);
  EXPECT_EQ(train(filed(options), 1), without);
  EXPECT_EQ(train(all_filed(options), 1), without);
  options.offload.tiers.gradients = Tier::kHost;
  EXPECT_EQ(train(all_filed(options), 1), without);
  options.parallel.zero = 2;
  EXPECT_EQ(train(filed(options), 2).states, without.states);
}

// A table of many chunks, cut where no run begins.
TEST_F(FileTier, ChangesNoBitOfABlockOfManyChunks) {
  TrainOptions options = options_of();
  options.model.vocabulary = 9001;
  options.model.hidden = 64;
  options.batch = {.sequence = kTokens, .sequences = 1, .micro = 1};
  const auto ops = make_cpu_ops(1);
  EXPECT_GT(plan_run(filed(options), *ops).state_file.chunks().size(), 5u);
  const Result without = train(options, 1);
  EXPECT_EQ(train(filed(options), 1), without);
  EXPECT_EQ(train(all_filed(options), 1), without);
}

TEST_F(FileTier, TheFileHasWhatThePlanSays) {
  const TrainOptions options = filed(options_of());
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops);
  const nn::MemoryPlan& plan = trainer.replica().plan();
  EXPECT_EQ(trainer.replica().state_file()->file().file_bytes(), plan.bytes(Tier::kFile));
  EXPECT_GE(plan.bytes(Tier::kFile), 12 * plan.flat.elements());
  // Of memory it takes the staging, and nothing of the states themselves.
  const nn::MemoryPlan whole = plan_run(options_of(), *ops);
  EXPECT_EQ(plan.bytes(Tier::kDevice) + 12 * plan.flat.elements(), whole.bytes(Tier::kDevice));
  EXPECT_GE(plan.bytes(Tier::kHost), plan.state_file.staging_bytes());
}

// By the allocator's own count: a save reads the file with memory that was planned for it.
TEST_F(FileTier, WithASaveTakesTheMemoryThatWasPlanned) {
  for (const auto precision : {plan::Precision::kBf16, plan::Precision::kF32}) {
    for (const bool all : {false, true}) {
      TrainOptions options = options_of();
      options.precision = precision;
      options.model.vocabulary = 9001;
      options.model.hidden = 64;
      options.batch = {.sequence = kTokens, .sequences = 1, .micro = 1};
      options.parallel.reduction = Reduction::kFast;
      const auto ops = make_cpu_ops(1);
      const std::size_t before = memory_in_use({});
      reset_peak_memory({});
      Trainer trainer(all ? all_filed(options) : filed(options), *ops);
      trainer.start();
      Result result;
      steps(trainer, 1, result);
      const nn::MemoryPlan& plan = trainer.replica().plan();
      EXPECT_LT(peak_memory({}) - before, plan.bytes());
      CheckpointFolder(scratch_.path() / "run")
          .save(trainer.replica(), {.state = trainer.state(), .config = "", .tokenizer = ""}, {});
      EXPECT_EQ(peak_memory({}) - before, plan.bytes());
    }
  }
}

TEST_F(FileTier, ACheckpointGoesOnInAnyTierAndAtAnyStage) {
  TrainOptions shared = options_of();
  shared.parallel.zero = 1;
  const Result whole = train(options_of(), 1, {.steps = 4});
  const TrainOptions ways[] = {options_of(), filed(options_of()), filed(shared),
                               all_filed(options_of())};
  for (const TrainOptions& from : ways) {
    const int workers = from.parallel.zero > 0 ? 2 : 1;
    train(from, workers, {.steps = 2, .saves = true});
    for (const TrainOptions& to : ways) {
      const Result rest = train(to, to.parallel.zero > 0 ? 2 : 1, {.restores = true, .steps = 2});
      EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 2, whole.losses.end()));
      EXPECT_EQ(rest.states, whole.states);
    }
  }
}

TEST_F(FileTier, ADamagedFileStopsTheRunBeforeAnythingIsComputedWithIt) {
  const TrainOptions options = filed(options_of());
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops);
  trainer.start();
  Result result;
  steps(trainer, 1, result);
  const int file = trainer.replica().state_file()->file().descriptor();
  const UniqueFd other(
      ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDWR | O_CLOEXEC));
  const char byte = 0x5a;
  ASSERT_EQ(::pwrite(other.get(), &byte, 1, 1234), 1);
  try {
    steps(trainer, 1, result);
    FAIL() << "it was computed with";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("block 0 of the file of the optimizer's states"),
                                    HasSubstr("last checkpoint")));
  }
}

TEST_F(FileTier, AFolderWithoutRoomIsToldBeforeTheRunBegins) {
  TrainOptions options = filed(options_of());
  options.offload.folder = scratch_.path() / "none";
  const auto ops = make_cpu_ops(1);
  EXPECT_THROW(Trainer(options, *ops), Error);
  options.offload.folder = scratch_.path().string();
  for (const char* bandwidth : {"fast", "0B/s"}) {
    options.offload.bandwidth = bandwidth;
    EXPECT_THROW(parallel::check(options.offload, options.parallel, {}), Error) << bandwidth;
  }
}

}  // namespace
}  // namespace lockstep::train::file_tier_test
