// Activations, gradients and shared-out parameters that lie in files train to the same bits, and
// take what was planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::filed_parts_test {
namespace {

using nn::Partition;
using nn::Tiers;
using parallel::Reduction;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSequences = 4;
constexpr int kTokens = 7;

constexpr Tiers kActivations{.activations = Tier::kFile};
constexpr Tiers kGradients{.gradients = Tier::kFile};
constexpr Tiers kUpdated{.optimizer = Tier::kFile, .gradients = Tier::kFile};
constexpr Tiers kStates{
    .optimizer = Tier::kFile, .gradients = Tier::kFile, .parameters = Tier::kFile};
constexpr Tiers kAll{.optimizer = Tier::kFile,
                     .gradients = Tier::kFile,
                     .parameters = Tier::kFile,
                     .activations = Tier::kFile};
constexpr Tiers kOnHostBut{.optimizer = Tier::kHost,
                           .gradients = Tier::kFile,
                           .parameters = Tier::kHost,
                           .activations = Tier::kFile};

Tiers one_by_one(Tiers tiers) {
  tiers.overlaps = false;
  return tiers;
}

std::size_t file_bytes(const nn::Replica& replica) {
  std::size_t bytes = 0;
  if (replica.state_file() != nullptr) bytes += replica.state_file()->file().file_bytes();
  if (replica.gradient_file() != nullptr) bytes += replica.gradient_file()->file().file_bytes();
  if (replica.activation_file() != nullptr) {
    bytes += replica.activation_file()->file().file_bytes();
  }
  return bytes;
}

class FiledParts : public ::testing::Test {
 protected:
  TrainOptions options_of(int micro, const Tiers& tiers = {}) const {
    TrainOptions options = tiny_options();
    options.model.layers = 4;
    options.model.dropout = 0.1;
    options.batch = {.sequence = kTokens, .sequences = kSequences, .micro = micro};
    options.parallel.reduction = Reduction::kFast;
    options.optimizer.max_grad_norm = 0.5;
    options.threads = 1;
    options.offload.tiers = tiers;
    options.offload.folder = scratch_.path().string();
    return options;
  }

  static Learned train(TrainOptions options, int workers, int steps = 2) {
    options.batch.workers = workers;
    parallel::check(options.offload, options.parallel, worker_position_of(options));
    Learned result;
    std::mutex mutex;
    run_workers(options, [&](Trainer& trainer, Communicator*) {
      trainer.start();
      Learned mine;
      run_steps(trainer, steps, [&](const StepMetrics& metrics) {
        mine.losses.push_back(metrics.loss);
        mine.norms.push_back(metrics.gradient_norm);
      });
      const nn::MemoryPlan& plan = trainer.replica().plan();
      EXPECT_EQ(trainer.device_memory().peak(), plan.bytes(Tier::kDevice));
      EXPECT_EQ(trainer.host_memory().peak(), plan.bytes(Tier::kHost));
      EXPECT_EQ(file_bytes(trainer.replica()), plan.bytes(Tier::kFile));
      const std::lock_guard lock(mutex);
      result.losses = mine.losses;
      result.norms = mine.norms;
      take_states(trainer.replica(), result.states);
    });
    return result;
  }

  ScratchFolder scratch_;
};

TEST_F(FiledParts, ChangeNoBitInAnyPrecisionAndRecomputation) {
  for (const auto precision : plan::kAllPrecisions) {
    for (const auto recompute :
         {RecomputeChoice::kNone, RecomputeChoice::kSelective, RecomputeChoice::kFull}) {
      TrainOptions options = options_of(2);
      options.precision = precision;
      options.recompute = recompute;
      const Learned without = train(options, 1);
      for (const Tiers& tiers : {kActivations, one_by_one(kActivations), kGradients, kAll,
                                 one_by_one(kAll), kOnHostBut}) {
        options.offload.tiers = tiers;
        EXPECT_EQ(train(options, 1), without)
            << plan::name(precision) << " " << name(recompute) << " " << tiers_text(tiers);
      }
    }
  }
}

TEST_F(FiledParts, ChangeNoBitWithAnyAccumulation) {
  for (const int micro : {1, 4}) {
    for (const double clip : {0.0, 0.5}) {
      TrainOptions options = options_of(micro);
      options.precision = plan::Precision::kBf16;
      options.optimizer.max_grad_norm = clip;
      const Learned without = train(options, 1);
      for (const Tiers& tiers : {kActivations, kGradients, kUpdated, kStates, kAll}) {
        options.offload.tiers = tiers;
        EXPECT_EQ(train(options, 1), without) << micro << " " << clip << " " << tiers_text(tiers);
      }
    }
  }
}

TEST_F(FiledParts, ActivationsChangeNoBitOfAnyStageAndNumberOfWorkers) {
  for (const int workers : {2, 3}) {
    for (int stage = 0; stage <= 3; ++stage) {
      TrainOptions options = options_of(1);
      options.parallel.zero = stage;
      const Learned without = train(options, workers);
      options.offload.tiers = kActivations;
      EXPECT_EQ(train(options, workers), without) << workers << " workers, stage " << stage;
    }
  }
}

// With three workers and four micro-batches one has more of them than the others.
TEST_F(FiledParts, SharedOutStatesChangeNoBit) {
  for (const auto precision : plan::kAllPrecisions) {
    for (const int workers : {2, 3}) {
      for (const auto partition : {Partition::kTensor, Partition::kLayer}) {
        for (const int stage : {2, 3}) {
          TrainOptions options = options_of(1);
          options.precision = precision;
          options.parallel.partition = partition;
          options.parallel.zero = stage;
          // Each stage with and without clipping.
          options.optimizer.max_grad_norm =
              (partition == Partition::kTensor) == (stage == 2) ? 0 : 0.5;
          const Learned without = train(options, workers);
          for (const Tiers& tiers : {kGradients, stage == 2 ? kUpdated : kAll}) {
            options.offload.tiers = tiers;
            EXPECT_EQ(train(options, workers), without)
                << plan::name(precision) << " " << workers << " workers, stage " << stage << ", "
                << tiers_text(tiers);
          }
        }
      }
    }
  }
}

// Each of several pieces, and blocks of several chunks.
TEST_F(FiledParts, ChangeNoBitOfWhatIsLongerThanAPiece) {
  TrainOptions options = options_of(2);
  options.model.vocabulary = 2001;
  options.model.positions = 384;
  options.model.hidden = 192;
  options.batch = {.sequence = 384, .sequences = 2, .micro = 1};
  options.precision = plan::Precision::kF32;
  const auto ops = make_cpu_ops(1);
  options.offload.tiers = kAll;
  const nn::MemoryPlan plan = plan_run(options, *ops);
  EXPECT_GT(plan.activation_file.block_bytes().size(), plan.activation_file.items.size());
  EXPECT_GT(plan.gradient_file.block_bytes().size(), plan.gradient_file.items.size() + 3);
  options.offload.tiers = {};
  const Learned without = train(options, 1, 1);
  options.offload.tiers = kAll;
  EXPECT_EQ(train(options, 1, 1), without);
  options.parallel.zero = 3;
  options.offload.tiers = {};
  const Learned shared = train(options, 2, 1);
  options.offload.tiers = kAll;
  EXPECT_EQ(train(options, 2, 1), shared);
}

TEST_F(FiledParts, ATreeOfOneMicroBatchAWorkerChangesNoBit) {
  TrainOptions options = options_of(1);
  options.parallel.reduction = Reduction::kTree;
  const Learned without = train(options, 1);
  options.parallel.zero = 3;
  options.offload.tiers = kAll;
  EXPECT_EQ(train(options, 4), without);
}

TEST_F(FiledParts, LeaveMemoryWithoutWhatLiesInFiles) {
  const auto ops = make_cpu_ops(1);
  TrainOptions options = options_of(4);
  options.model.layers = 12;
  options.model.hidden = 64;
  options.precision = plan::Precision::kBf16;
  const nn::MemoryPlan whole = plan_run(options, *ops);
  options.offload.tiers = {.activations = Tier::kHost};
  const nn::MemoryPlan on_host = plan_run(options, *ops);
  options.offload.tiers = kActivations;
  const nn::MemoryPlan kept = plan_run(options, *ops);
  EXPECT_LT(kept.bytes(Tier::kDevice), whole.bytes(Tier::kDevice));
  EXPECT_EQ(kept.bytes(Tier::kDevice), on_host.bytes(Tier::kDevice));
  EXPECT_EQ(kept.bytes(Tier::kHost), kept.activation_file.staging_bytes());
  EXPECT_GE(kept.bytes(Tier::kFile), on_host.bytes(Tier::kHost));

  options.offload.tiers = kAll;
  const nn::MemoryPlan all = plan_run(options, *ops);
  EXPECT_GE(all.bytes(Tier::kFile), 16 * all.flat.elements() + kept.bytes(Tier::kFile));
  // Staging alone, which does not grow with the model.
  options.model.layers = 24;
  const nn::MemoryPlan deep = plan_run(options, *ops);
  EXPECT_LT(deep.bytes(Tier::kHost), all.bytes(Tier::kHost) + 4096);
}

TEST_F(FiledParts, AModelFarLargerThanTheDeviceTrains) {
  TrainOptions options = options_of(1);
  options.model.hidden = 64;
  options.model.layers = 12;
  options.precision = plan::Precision::kBf16;
  options.batch.sequences = options.batch.micro = 1;
  const Learned without = train(options, 1);
  const auto ops = make_cpu_ops(1);
  options.offload.tiers = kAll;
  options.device_limit = plan_run(options, *ops).bytes(Tier::kDevice);
  EXPECT_LT(options.device_limit, 16 * plan_run(options, *ops).flat.elements() / 4);
  EXPECT_EQ(train(options, 1), without);
  --options.device_limit;
  EXPECT_THROW(train(options, 1), Error);
}

TEST_F(FiledParts, ACheckpointOfSharesInFilesGoesOnAnywhere) {
  TrainOptions shared = options_of(1, kAll);
  shared.parallel.zero = 3;
  const auto run = [&](TrainOptions options, bool restores, bool saves) {
    options.batch.workers = 2;
    std::vector<double> losses;
    std::mutex mutex;
    run_workers(options, [&](Trainer& trainer, Communicator* others) {
      RunGroup group(others);
      CheckpointFolder folder(scratch_.path() / "run");
      if (restores) trainer.set_state(folder.restore(trainer.replica(), {}, group).value());
      trainer.start();
      std::vector<double> mine;
      run_steps(trainer, 2, [&](const StepMetrics& metrics) { mine.push_back(metrics.loss); });
      const CheckpointExtras extras{.state = trainer.state(), .config = "", .tokenizer = ""};
      if (saves) folder.save_by_all(trainer.replica(), extras, {}, group);
      group.barrier();
      const std::lock_guard lock(mutex);
      losses = mine;
    });
    return losses;
  };
  run(shared, false, true);
  const std::vector<double> rest = run(shared, true, false);
  TrainOptions plain = options_of(1);
  plain.parallel.zero = 3;
  EXPECT_EQ(run(plain, true, false), rest);
  // And the other way round.
  run(plain, true, true);
  EXPECT_EQ(run(shared, true, false), run(plain, true, false));
}

TEST_F(FiledParts, RefuseWhatSavesNothing) {
  const auto refused = [](TrainOptions options, int workers) -> std::string {
    options.batch.workers = workers;
    try {
      parallel::check(options.offload, options.parallel, worker_position_of(options));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  TrainOptions options = options_of(1, kGradients);
  EXPECT_EQ(refused(options, 1), "");
  EXPECT_THAT(refused(options, 2), AllOf(HasSubstr("parallel.zero = 2 or 3"), HasSubstr("host")));
  options.parallel.zero = 2;
  EXPECT_EQ(refused(options, 2), "");
  options.parallel.no_sync = true;
  EXPECT_THAT(refused(options, 2), HasSubstr("parallel.no_sync"));
  options.parallel.no_sync = false;
  options.parallel.reduction = Reduction::kTree;
  EXPECT_THAT(refused(options, 2), HasSubstr("sums of 2 micro-batches"));
  EXPECT_THAT(refused(options, 1), HasSubstr("sums of 4 micro-batches"));
  EXPECT_EQ(refused(options, 4), "");

  options = options_of(1, kStates);
  for (const int stage : {1, 2}) {
    options.parallel.zero = stage;
    EXPECT_THAT(refused(options, 2), HasSubstr("parallel.zero = 3")) << stage;
    EXPECT_EQ(refused(options, 1), "") << stage;
  }
  options.parallel.zero = 3;
  EXPECT_EQ(refused(options, 2), "");
  options.offload.tiers.optimizer = Tier::kHost;
  EXPECT_THAT(refused(options, 2), HasSubstr("offload.optimizer = \"file\""));
}

}  // namespace
}  // namespace lockstep::train::filed_parts_test
