// Several workers that train one model together, as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/ddp/ddp.h"
#include "lockstep/parallel/make_strategy.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train::workers_test {
namespace {

using parallel::Reduction;

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> parameters;
  friend bool operator==(const Trained&, const Trained&) = default;
};

constexpr int kSequences = 8;

TrainOptions options_of(int micro, Reduction reduction) {
  TrainOptions options = tiny_options();
  options.batch = {.sequence = 7, .sequences = kSequences, .micro = micro};
  options.parallel.reduction = reduction;
  options.parallel.bucket_mb = 0.002;
  options.parallel.first_bucket_mb = 0.001;
  options.parallel.check_every = 2;
  options.model.dropout = 0.1;
  options.threads = 1;
  return options;
}

Trained train(const TrainOptions& options, parallel::Strategy& strategy, int steps) {
  const auto ops = make_cpu_ops(1);
  Trainer trainer(options, *ops, strategy);
  trainer.start();
  Sequences sequences(kSequences, 7);
  const auto batches = sequences.batches(solved(options.batch).micro);
  Trained result;
  for (int i = 0; i < steps; ++i) {
    const auto share = strategy.next(step_plan(options.batch), i, steps).value();
    const auto mine = std::span(batches).subspan(static_cast<std::size_t>(share.first_micro_batch),
                                                 static_cast<std::size_t>(share.micro_batches));
    const StepMetrics metrics = trainer.step(mine, share).value();
    result.losses.push_back(metrics.loss);
    result.norms.push_back(metrics.gradient_norm);
    EXPECT_EQ(metrics.costs.size(), static_cast<std::size_t>(strategy.workers()));
    EXPECT_EQ(metrics.tokens, kSequences * 7);
  }
  const auto master = trainer.replica().states().master.as<const float>();
  result.parameters.assign(master.begin(), master.end());
  return result;
}

// All workers end alike; their result.
Trained together(TrainOptions options, int workers, int steps = 5) {
  options.batch.workers = workers;
  Trained result;
  std::mutex mutex;
  run_threads(workers, [&](Communicator& world) {
    parallel::Ddp ddp(world, options.parallel, solved(options.batch).accumulation);
    const Trained mine = train(options, ddp, steps);
    const std::lock_guard lock(mutex);
    if (result.losses.empty()) result = mine;
    EXPECT_EQ(result, mine) << "rank " << world.rank();
  });
  return result;
}

void expect_near(const Trained& one, const Trained& other, double tolerance) {
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], other.losses[i], tolerance);
    EXPECT_NEAR(one.norms[i], other.norms[i], tolerance * 10);
  }
  double largest = 0;
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    largest = std::max<double>(largest, std::abs(one.parameters[i] - other.parameters[i]));
  }
  EXPECT_LT(largest, tolerance * 100);
}

TEST(Workers, TreesGiveTheSameBitsForOneTwoFourAndEight) {
  const TrainOptions options = options_of(1, Reduction::kTree);
  const Trained alone = together(options, 1);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const int workers : {2, 4, 8}) EXPECT_EQ(together(options, workers), alone) << workers;
}

TEST(Workers, TreesGiveTheSameBitsAtEachOfTheAlgorithmsThatTheyAllow) {
  TrainOptions options = options_of(2, Reduction::kTree);
  const Trained alone = together(options, 1);
  for (const char* algorithm : {"butterfly", "rabenseifner"}) {
    options.parallel.algorithm = algorithm;
    EXPECT_EQ(together(options, 4), alone) << algorithm;
  }
  options.parallel.algorithm = "ring";
  EXPECT_THROW(together(options, 4), Error);
}

TEST(Workers, DoWhatOneDoesHoweverTheyShareAStep) {
  for (const int micro : {1, 2}) {
    const TrainOptions options = options_of(micro, Reduction::kFast);
    const Trained alone = together(options, 1);
    for (const int workers : {2, 3, 4}) {
      expect_near(together(options, workers), alone, 2e-5);
    }
  }
}

TEST(Workers, DoTheSameWithoutOverlapAndWithAnyAlgorithm) {
  TrainOptions options = options_of(1, Reduction::kFast);
  const Trained alone = together(options, 1);
  options.parallel.overlap = false;
  expect_near(together(options, 2), alone, 2e-5);
  options.parallel.overlap = true;
  for (const char* algorithm : {"ring", "tree", "naive"}) {
    options.parallel.algorithm = algorithm;
    expect_near(together(options, 3), alone, 2e-5);
  }
}

// The table of tokens is larger than the rows that a batch has of it.
TEST(Workers, ExchangeRowsOfATableThatIsLargerThanThey) {
  for (const bool tied : {true, false}) {
    for (const int micro : {1, 4}) {
      TrainOptions options = options_of(micro, Reduction::kFast);
      options.model.vocabulary = 1009;
      options.model.tie_word_embeddings = tied ? TieChoice::kTied : TieChoice::kUntied;
      if (!tied) options.model.family = ModelFamily::kLlama;
      options.model.dropout = 0;
      const Trained alone = together(options, 1);
      expect_near(together(options, 2), alone, 2e-5);
      options.parallel.overlap = false;
      expect_near(together(options, 2), alone, 2e-5);
    }
  }
}

TEST(Workers, LearnInSixteenBits) {
  for (const auto precision : {plan::Precision::kBf16, plan::Precision::kF16}) {
    TrainOptions options = options_of(4, Reduction::kFast);
    options.precision = precision;
    const Trained two = together(options, 2, 10);
    EXPECT_LT(two.losses.back(), two.losses.front());
  }
}

TEST(Workers, LearnWithCompressedGradientsAndSendLess) {
  TrainOptions options = options_of(1, Reduction::kFast);
  options.model.dropout = 0;
  const Trained plain = together(options, 2, 40);
  for (const auto compression : parallel::kAllCompressions) {
    options.parallel.compression = {.compression = compression, .ratio = 0.1};
    const Trained squeezed = together(options, 2, 40);
    EXPECT_LT(squeezed.losses.back(), plain.losses.front() - 0.5) << name(compression);
  }
  options.parallel.reduction = Reduction::kTree;
  EXPECT_THROW(together(options, 2), Error);
}

TEST(Workers, LearnWithCompressedGradientsThroughServers) {
  using parallel::Consistency;
  for (const Consistency consistency : {Consistency::kBsp, Consistency::kAsp, Consistency::kSsp}) {
    for (const auto compression : parallel::kAllCompressions) {
      TrainOptions options = options_of(1, Reduction::kFast);
      options.model.dropout = 0;
      options.precision =
          consistency == Consistency::kSsp ? plan::Precision::kBf16 : plan::Precision::kF32;
      options.batch.workers = 2;
      options.parallel.strategy = parallel::StrategyKind::kParameterServer;
      options.parallel.server = {.servers = 2, .consistency = consistency, .slice_mb = 0.002};
      options.parallel.compression = {.compression = compression, .ratio = 0.1};
      parallel::StrategyJob job{.options = options.parallel, .optimizer = options.optimizer};
      job.most_micro_batches = solved(options.batch).accumulation;
      std::array<std::vector<double>, 2> losses_of;
      run_threads(2, [&](Communicator& world) {
        const auto strategy = make_strategy(job, &world);
        const auto ops = make_cpu_ops(1);
        Trainer trainer(options, *ops, *strategy);
        trainer.start();
        Sequences sequences(kSequences, 7);
        const auto batches = sequences.batches(1);
        std::vector<double>& losses = losses_of[static_cast<std::size_t>(world.rank())];
        while (const auto share =
                   strategy->next(step_plan(options.batch), trainer.state().steps, 40)) {
          const auto mine =
              std::span(batches).subspan(static_cast<std::size_t>(share->first_micro_batch),
                                         static_cast<std::size_t>(share->micro_batches));
          losses.push_back(trainer.step(mine, *share).value().loss);
        }
      });
      // A worker of asp may begin when the other one has trained the model, or have nothing to do.
      double first = 0;
      for (const auto& losses : losses_of) {
        if (!losses.empty()) first = std::max(first, losses.front());
      }
      for (const auto& losses : losses_of) {
        if (losses.size() < 10) continue;
        EXPECT_LT(losses.back(), first - 0.5) << name(compression) << ' ' << name(consistency);
      }
    }
  }
}

TEST(Workers, TakeWhatIsPlanned) {
  for (const Reduction reduction : {Reduction::kFast, Reduction::kTree}) {
    TrainOptions options = options_of(1, reduction);
    options.model.vocabulary = 1009;
    options.batch.workers = 2;
    run_threads(2, [&](Communicator& world) {
      const auto ops = make_cpu_ops(1);
      parallel::Ddp ddp(world, options.parallel, solved(options.batch).accumulation);
      Trainer trainer(options, *ops, ddp);
      const nn::MemoryPlan& plan = trainer.replica().plan();
      std::size_t all = 0;
      for (const GroupBytes& each : plan.by_class()) all += each.bytes;
      EXPECT_EQ(all, plan.bytes());
      EXPECT_GT(plan.bytes(), plan.layout.bytes + plan.flat.elements() * sizeof(float));
    });
  }
}

TEST(Workers, StopTogetherWhereOneIsAskedTo) {
  TrainOptions options = options_of(1, Reduction::kFast);
  options.batch.workers = 2;
  run_threads(2, [&](Communicator& world) {
    const auto ops = make_cpu_ops(1);
    parallel::Ddp ddp(world, options.parallel, solved(options.batch).accumulation);
    Trainer trainer(options, *ops, ddp);
    trainer.start();
    Sequences sequences(kSequences / 2, 7);
    const auto batches = sequences.batches(1);
    const parallel::Share share{
        .step = 1, .first_micro_batch = 4 * world.rank(), .micro_batches = 4};
    EXPECT_FALSE(trainer.step(batches, share, world.rank() == 1));
    EXPECT_EQ(trainer.state().steps, 0);
    EXPECT_TRUE(trainer.step(batches, share));
  });
}

TEST(Workers, AreNamedWhenTheirParametersDiffer) {
  TrainOptions options = options_of(1, Reduction::kFast);
  options.batch.workers = 3;
  const auto run = [&] {
    run_threads(3, [&](Communicator& world) {
      const auto ops = make_cpu_ops(1);
      parallel::Ddp ddp(world, options.parallel, solved(options.batch).accumulation);
      Trainer trainer(options, *ops, ddp);
      trainer.start();
      if (world.rank() == 2) trainer.replica().states().master.as<float>()[3] += 1e-3f;
      ddp.compare_workers(true);
    });
  };
  try {
    run();
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 2"));
  }
}

TEST(BatchChoice, IsSharedByWorkers) {
  EXPECT_EQ(solved({.sequences = 8, .workers = 4}).micro, 2);
  EXPECT_EQ(solved({.sequences = 8, .workers = 4}).accumulation, 1);
  EXPECT_EQ(solved({.sequences = 8, .micro = 1, .workers = 4}).accumulation, 2);
  EXPECT_EQ(solved({.micro = 2, .accumulation = 3, .workers = 4}).sequences, 24);
  EXPECT_EQ(solved({.sequences = 10, .workers = 4}).micro, 1);
  EXPECT_EQ(solved({.sequences = 10, .workers = 4}).accumulation, 3);
  EXPECT_EQ(solved({.sequences = 12, .micro = 2, .workers = 4}).accumulation, 2);
  EXPECT_EQ(solved({.workers = 3}).sequences, 3);
  EXPECT_THROW(solved({.sequences = 3, .workers = 4}), Error);
  EXPECT_THROW(solved({.sequences = 8, .micro = 4, .workers = 4}), Error);
  EXPECT_THROW(solved({.sequences = 8, .micro = 1, .accumulation = 1, .workers = 4}), Error);
}

// The largest micro-batch with which the worker that has most sequences has no more than it must.
TEST(BatchChoice, OfTheBatchAloneLeavesNoWorkerMoreThanItMustHave) {
  for (int workers = 1; workers <= 4; ++workers) {
    for (int sequences = workers; sequences <= 144; ++sequences) {
      int best = 0;
      int least = sequences + 1;
      for (int micro = 1; micro <= sequences / workers; ++micro) {
        if (sequences % micro != 0) continue;
        int most = 0;
        for (int dealt = 0; dealt < sequences / micro; dealt += workers) most += micro;
        if (most <= least) {
          least = most;
          best = micro;
        }
      }
      const BatchChoice found = solved({.sequences = sequences, .workers = workers});
      EXPECT_EQ(found.micro, best) << sequences << " on " << workers;
      EXPECT_EQ(found.micro * found.accumulation, least) << sequences << " on " << workers;
    }
  }
}

TEST(BatchChoice, OfAnySizeIsFoundAtOnce) {
  constexpr int kMost = std::numeric_limits<int>::max();  // a prime
  EXPECT_EQ(solved({.sequences = kMost}).micro, kMost);
  EXPECT_EQ(solved({.sequences = kMost - 1, .workers = 2}).micro, (kMost - 1) / 2);
}

TEST(TrainOptions, RefuseMicroBatchesThatCannotBeCounted) {
  const auto refusal = [](int micro, int sequence, int hidden) -> std::string {
    TrainOptions options;
    options.model = {.family = ModelFamily::kLlama, .layers = 1, .hidden = hidden, .heads = 1};
    options.batch = {.sequence = sequence, .micro = micro};
    try {
      setup_of(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing was thrown";
  };
  constexpr int kMost = std::numeric_limits<int>::max();
  EXPECT_THAT(refusal(kMost, kMost, 8), ::testing::HasSubstr("one may have too many digits"));
  EXPECT_THAT(refusal(kMost, 1024, 65'536), ::testing::HasSubstr("check train.micro_batch_size"));
  EXPECT_EQ(refusal(kMost, 8, 64), "nothing was thrown");
  EXPECT_EQ(refusal(1, 1 << 24, 65'536), "nothing was thrown");
  EXPECT_EQ(refusal(65'536, 1 << 17, 16'384), "nothing was thrown");
}

}  // namespace
}  // namespace lockstep::train::workers_test
