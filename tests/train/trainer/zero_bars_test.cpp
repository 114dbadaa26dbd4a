// What workers that shard their states promise, over many steps and many workers: the same
// bits, the bytes of the formulas, and no more sent than those.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/parallel/traffic.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::zero_bars_test {
namespace {

using nn::Partition;
using parallel::Reduction;

constexpr int kSequences = 8;
constexpr int kTokens = 7;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSteps = 4;
constexpr int kManyWorkers = 16;
#else
constexpr int kSteps = 50;
constexpr int kManyWorkers = 64;
#endif

TrainOptions tree_options() {
  TrainOptions options = tiny_options();
  options.model.dropout = 0.1;
  options.batch = {.sequence = kTokens, .sequences = kSequences, .micro = 1};
  options.parallel.reduction = Reduction::kTree;
  options.threads = 1;
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::uint64_t> sent;  // by each worker in the last step
  nn::MemoryPlan plan;              // of worker 0
};

Trained train(TrainOptions options, int workers, int steps) {
  options.batch.workers = workers;
  Trained result;
  run_workers(options, [&](Trainer& trainer, Communicator* others) {
    trainer.start();
    std::vector<double> losses;
    std::vector<std::uint64_t> sent;
    run_steps(trainer, steps, [&](const StepMetrics& metrics) {
      losses.push_back(metrics.loss);
      sent.clear();
      for (const parallel::StepCost& cost : metrics.costs) sent.push_back(cost.bytes_sent);
    });
    if (others != nullptr && others->rank() > 0) return;
    result = {losses, sent, trainer.replica().plan()};
  });
  return result;
}

// A budget between what everything and what nothing done again takes.
std::size_t middle_budget(TrainOptions options) {
  const auto ops = make_cpu_ops(1);
  options.recompute = RecomputeChoice::kNone;
  const std::size_t none = plan_run(options, *ops).bytes();
  options.recompute = RecomputeChoice::kFull;
  return (none + plan_run(options, *ops).bytes()) / 2;
}

constexpr RecomputeChoice kEveryRecompute[] = {RecomputeChoice::kNone, RecomputeChoice::kSelective,
                                               RecomputeChoice::kFull, RecomputeChoice::kAuto};

constexpr nn::Tiers kEveryTiers[] = {
    {},
    {.optimizer = Tier::kHost,
     .gradients = Tier::kHost,
     .parameters = Tier::kHost,
     .activations = Tier::kHost},
    {.optimizer = Tier::kFile},
    {.optimizer = Tier::kFile, .parameters = Tier::kFile, .activations = Tier::kFile}};

// As it comes to a stage for the so-manieth time, so that each of these comes to each stage.
void vary(TrainOptions& options, std::size_t turn) {
  options.recompute = kEveryRecompute[turn % std::size(kEveryRecompute)];
  options.offload.tiers = kEveryTiers[(turn + turn / 4) % std::size(kEveryTiers)];
  options.parallel.reshard_after_forward = options.parallel.zero == 3 && turn / 2 % 2 != 0;
  // Stages 1 and 2 have all parameters in memory.
  if (!goes_together(options)) options.offload.tiers.parameters = Tier::kHost;
}

TEST(ZeroBars, FiftyStepsAreTheSameBitsWhateverIsSharedOutMovedOrDoneAgain) {
  const ScratchFolder scratch;
  const std::vector<double> alone = train(tree_options(), 1, kSteps).losses;
  EXPECT_LT(alone.back(), alone.front());
  std::size_t turns[4] = {};
  for (const int workers : {1, 2, 4, 8}) {
    for (int stage = 0; stage <= 3; ++stage) {
      if (workers == 1 && stage > 0) continue;
      for (const Partition partition : {Partition::kTensor, Partition::kLayer}) {
        if (stage == 0 && partition == Partition::kLayer && workers > 1) continue;
        TrainOptions options = tree_options();
        options.parallel.zero = stage;
        options.parallel.partition = partition;
        options.offload.folder = scratch.path().string();
        options.batch.workers = workers;
        vary(options, turns[stage]++);
        if (options.recompute == RecomputeChoice::kAuto) {
          options.memory_limit = middle_budget(options);
        }
        const Trained trained = train(options, workers, kSteps);
        EXPECT_EQ(trained.losses, alone)
            << workers << " workers, stage " << stage << ", " << name(options.recompute) << ", "
            << tiers_text(options.offload.tiers);
      }
    }
  }
}

TEST(ZeroBars, APlanKnowsWhatEveryWorkerSends) {
  const struct {
    int workers;
    int micro;
    Reduction reduction;
    bool holds;
    plan::Precision precision;
  } ways[] = {
      {2, 4, Reduction::kFast, false, plan::Precision::kBf16},
      {2, 1, Reduction::kFast, false, plan::Precision::kF32},
      {2, 2, Reduction::kFast, true, plan::Precision::kBf16},
      {3, 2, Reduction::kFast, false, plan::Precision::kF32},
      {4, 1, Reduction::kTree, false, plan::Precision::kF32},
  };
  for (const auto& way : ways) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const Partition partition : {Partition::kTensor, Partition::kLayer}) {
        TrainOptions options = tree_options();
        options.model.vocabulary = stage == 0 ? 1009 : kVocabulary;  // rows of a table travel alone
        options.batch.micro = way.micro;
        options.batch.workers = way.workers;
        options.precision = way.precision;
        options.parallel.reduction = way.reduction;
        options.parallel.no_sync = way.holds;
        options.parallel.zero = stage;
        options.parallel.partition = partition;
        options.parallel.reshard_after_forward = stage == 3 && partition != Partition::kTensor;
        const auto ops = make_cpu_ops(1);
        const auto planned = parallel::traffic_of(
            options.parallel,
            {.workers = way.workers, .most_micro_batches = solved(options.batch).accumulation},
            plan_run(options, *ops));
        ASSERT_TRUE(planned);
        const auto sent = train(options, way.workers, 2).sent;
        const auto all = planned->total().all;
        const std::string of = fmt::format("{} workers, stage {}", way.workers, stage);
        EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}),
                  static_cast<std::uint64_t>(way.workers) * all)
            << of;
        // In a tree some ranks sum for others; the plan has the mean.
        if (way.reduction != Reduction::kTree) {
          EXPECT_THAT(sent, ::testing::Each(all)) << of;
        }
      }
    }
  }
}

// What each worker sends in a step, which is what the plan says.
std::uint64_t sent_as_planned(const TrainOptions& options) {
  const int workers = options.batch.workers;
  const auto ops = make_cpu_ops(1);
  const auto planned =
      parallel::traffic_of(options.parallel, {.workers = workers}, plan_run(options, *ops));
  EXPECT_THAT(train(options, workers, 2).sent, ::testing::Each(planned->total().all));
  return planned->total().all;
}

struct Language {
  ModelFamily family;
  TieChoice logits;
};
constexpr Language kLanguages[] = {{ModelFamily::kGpt2, TieChoice::kTied},
                                   {ModelFamily::kGpt2, TieChoice::kUntied},
                                   {ModelFamily::kLlama, TieChoice::kTied},
                                   {ModelFamily::kLlama, TieChoice::kUntied}};

// In one micro-batch, with a table of which few rows are read.
TrainOptions sending_options(const Language& language, int workers) {
  TrainOptions options = tree_options();
  options.parallel.reduction = Reduction::kFast;
  options.precision = plan::Precision::kBf16;
  options.batch.micro = kSequences / workers;
  options.batch.workers = workers;
  options.model.family = language.family;
  options.model.tie_word_embeddings = language.logits;
  options.model.vocabulary = 1009;
  return options;
}

// P: elements of the flat buffer of parameters with its padding, in bf16 both ways.
TEST(ZeroBars, SendTwiceTheParametersAndThreeTimesAtStageThree) {
  for (const Language& language : kLanguages) {
    for (const int workers : {2, 4}) {
      for (int stage = 0; stage <= 3; ++stage) {
        TrainOptions options = sending_options(language, workers);
        options.parallel.zero = stage;
        options.parallel.overlap = stage > 0;
        options.parallel.reshard_after_forward = stage == 3;
        const auto n = static_cast<std::uint64_t>(workers);
        const std::uint64_t p = plan_run(options, *make_cpu_ops(1)).flat.elements();
        EXPECT_EQ(sent_as_planned(options), (stage < 3 ? 2 : 3) * p * 2 * (n - 1) / n)
            << workers << " workers, stage " << stage;
      }
    }
  }
}

// Less: the last block's parameters stay, and no backward reads a table that has no part in logits.
TEST(ZeroBars, SendAtStageThreeWhatIsGatheredForForwardAndForBackward) {
  for (const Language& language : kLanguages) {
    for (const int workers : {2, 4}) {
      TrainOptions options = sending_options(language, workers);
      options.parallel.zero = 3;
      const auto n = static_cast<std::uint64_t>(workers);
      const nn::FlatParameters flat = plan_run(options, *make_cpu_ops(1)).flat;
      const std::size_t embedding = flat.range(0).elements;
      const std::size_t head = flat.range(flat.blocks() - 1).elements;
      const bool own = language.logits == TieChoice::kUntied;
      const std::size_t elements = 3 * flat.elements() - head - (own ? embedding : 0);
      EXPECT_EQ(sent_as_planned(options), elements * 2 * (n - 1) / n) << workers << " workers";
    }
  }
}

// Of the table's gradient by embedding, all rows that a worker has read go to each other one; by
// logits, the whole of it is reduced like all others'.
TEST(ZeroBars, SendWithoutStagesTheRowsOfATableByThemselves) {
  for (const Language& language : kLanguages) {
    for (const int workers : {2, 4}) {
      const TrainOptions options = sending_options(language, workers);
      const auto n = static_cast<std::uint64_t>(workers);
      const nn::FlatParameters flat = plan_run(options, *make_cpu_ops(1)).flat;
      const std::size_t width = flat.find("embedding.tokens").shape[1];
      constexpr std::size_t kAlignment = nn::FlatParameters::kAlignment;
      const std::size_t table = (flat.find("embedding.tokens").shape.elements() + kAlignment - 1) /
                                kAlignment * kAlignment;
      const bool own = language.logits == TieChoice::kUntied;
      const std::size_t reduced = flat.elements() - (own ? table : 0);
      const std::size_t rows = kSequences / n * kTokens;
      EXPECT_EQ(sent_as_planned(options),
                2 * reduced * 2 * (n - 1) / n + (n - 1) * rows * (4 + 2 * width))
          << workers << " workers";
    }
  }
}

std::size_t class_bytes(const nn::MemoryPlan& plan, std::string_view name) {
  std::size_t bytes = 0;
  for (const GroupBytes& group : plan.by_class()) {
    if (group.group == name) bytes += group.bytes;
  }
  return bytes;
}

// 16P, 4P + 12P/N, 2P + 14P/N, 16P/N bytes; P with less than 64 N elements of padding a block.
TEST(ZeroBars, StatesTakeTheBytesOfTheFormulasAndTheAllocatorThoseOfThePlan) {
  for (const int workers : {1, 2, 4, 8, kManyWorkers}) {
    for (int stage = 0; stage <= 3; ++stage) {
      if (workers == 1 && stage > 0) continue;
      TrainOptions options = tiny_options(plan::Precision::kBf16);
      options.batch = {.sequence = kTokens, .micro = 1, .accumulation = 1, .workers = workers};
      options.parallel.zero = stage;
      options.threads = 1;
      const std::size_t before = memory_in_use({});
      std::mutex mutex;
      std::size_t planned = 0;
      run_threads(workers, [&](Communicator& world) {
        const auto ops = make_cpu_ops(1);
        const auto strategy =
            parallel::make_strategy({.options = options.parallel, .optimizer = options.optimizer},
                                    workers > 1 ? &world : nullptr);
        Trainer trainer(options, *ops, *strategy);
        const nn::MemoryPlan& plan = trainer.replica().plan();
        const std::size_t n = static_cast<std::size_t>(workers);
        const std::size_t p = plan.flat.elements();
        const std::size_t formulas[] = {16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n};
        const std::size_t sums = padded_bytes(plan.requests[plan.sums_of_squares.request]);
        EXPECT_EQ(class_bytes(plan, "parameters") + class_bytes(plan, "gradients") +
                      class_bytes(plan, "optimizer"),
                  formulas[stage] + sums);
        EXPECT_LT(p, plan.flat.count() + plan.flat.blocks() * 64 * n + plan.flat.all().size() * 64);
        {
          const std::lock_guard lock(mutex);
          planned += plan.layout.bytes;
        }
        world.barrier();
        if (world.rank() == 0) {
          EXPECT_EQ(memory_in_use({}) - before, planned);
        }
        world.barrier();
      });
      EXPECT_EQ(memory_in_use({}), before);
    }
  }
}

int most_gathered_at_once(const nn::MemoryPlan& plan) {
  const int steps = 2 * static_cast<int>(plan.blocks.size());
  int most = 0;
  for (int step = 0; step <= steps; ++step) {
    int gathered = 0;
    for (const Request& request : plan.requests) {
      const bool lives = request.first_step <= step && step <= request.last_step;
      if (request.group == "gathered" && lives) ++gathered;
    }
    most = std::max(most, gathered);
  }
  return most;
}

TEST(ZeroBars, NoMoreThanTwoBlocksAreGatheredAtOnce) {
  for (const Language& language : kLanguages) {
    for (const auto recompute : {RecomputeChoice::kNone, RecomputeChoice::kFull}) {
      for (const bool keeps : {true, false}) {
        TrainOptions options = sending_options(language, 4);
        options.model.layers = 5;
        options.parallel.zero = 3;
        options.parallel.reshard_after_forward = !keeps;
        options.recompute = recompute;
        EXPECT_EQ(most_gathered_at_once(plan_run(options, *make_cpu_ops(1))), 2);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::train::zero_bars_test
