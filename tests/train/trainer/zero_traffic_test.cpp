// What a plan says that workers send, inside their nodes and across, is what a run counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "lockstep/parallel/traffic.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::zero_traffic_test {
namespace {

using parallel::Quantization;
using parallel::Traffic;

struct Spread {
  int workers;
  int hosts;
};

struct Counted {
  std::vector<std::uint64_t> sent;  // by each worker in the last step
  std::uint64_t across = 0;         // by all of them
};

Counted count(const TrainOptions& options, int hosts, int steps) {
  CommOptions comm = options.parallel.comm;
  comm.emulated_nodes = hosts;
  comm.cache_dir.clear();
  Counted counted;
  run_workers(
      options,
      [&](Trainer& trainer, Communicator* others) {
        trainer.start();
        Counted mine;
        run_steps(trainer, steps, [&](const StepMetrics& metrics) {
          mine = {};
          for (const parallel::StepCost& cost : metrics.costs) {
            mine.sent.push_back(cost.bytes_sent);
            mine.across += cost.bytes_across;
          }
        });
        if (others == nullptr || others->rank() == 0) counted = mine;
      },
      comm);
  return counted;
}

std::optional<Traffic> planned(const TrainOptions& options) {
  const auto ops = make_cpu_ops(1);
  const BatchChoice batch = solved(options.batch);
  return parallel::traffic_of(options.parallel,
                              {.workers = batch.workers, .most_micro_batches = batch.accumulation},
                              plan_run(options, *ops));
}

TrainOptions options_of(const Spread& spread, int zero, int micro) {
  TrainOptions options = tiny_options(plan::Precision::kBf16);
  options.batch = {.sequence = 7, .sequences = 12, .micro = micro, .workers = spread.workers};
  options.parallel.zero = zero;
  options.parallel.machines = spread.hosts;
  options.threads = 1;
  return options;
}

void expect_as_planned(const TrainOptions& options, const Spread& spread) {
  const auto traffic = planned(options);
  ASSERT_TRUE(traffic);
  const parallel::SentBytes total = traffic->total();
  const Counted counted = count(options, spread.hosts, 2);
  const auto sent = std::accumulate(counted.sent.begin(), counted.sent.end(), std::uint64_t{0});
  EXPECT_EQ(sent, total.links.total());
  EXPECT_EQ(counted.across, total.links.across);
  EXPECT_LE(counted.across, sent) << "a part is larger than the whole";
}

TEST(ZeroTraffic, IsPlannedToTheByteInsideMachinesAndAcross) {
  for (const Spread& spread : {Spread{2, 1}, Spread{2, 2}, Spread{3, 1}, Spread{3, 3}, Spread{4, 2},
                               Spread{4, 4}, Spread{6, 2}, Spread{6, 3}}) {
    for (int zero = 1; zero <= 3; ++zero) {
      for (const Quantization gradients :
           {Quantization::kNone, Quantization::kInt8, Quantization::kInt4}) {
        for (const Quantization weights :
             {Quantization::kNone, Quantization::kInt8, Quantization::kInt4}) {
          if (zero < 3 && weights != Quantization::kNone) continue;
          // Both kinds of payloads alike, or one of them: all that differ in how they are counted.
          if (weights != gradients && weights != Quantization::kInt8) continue;
          TrainOptions options = options_of(spread, zero, 12 / spread.workers);
          options.parallel.quantized_gradients = gradients;
          options.parallel.quantized_weights = weights;
          options.parallel.secondary_partition = zero == 3 && gradients != Quantization::kNone;
          SCOPED_TRACE(testing::Message()
                       << spread.workers << " workers on " << spread.hosts << ", stage " << zero
                       << ", " << name(weights) << " " << name(gradients));
          expect_as_planned(options, spread);
        }
      }
    }
  }
}

TEST(ZeroTraffic, OfSeveralMicroBatchesIsPlannedWithEitherPolicyAndASecondaryPartition) {
  const Spread spread{4, 2};
  for (const bool holds : {false, true}) {
    for (const bool secondary : {false, true}) {
      for (const int micro : {1, 2}) {  // 3 each; two workers have two, and two stand in
        TrainOptions options = options_of(spread, 3, micro);
        options.parallel.no_sync = holds;
        options.parallel.secondary_partition = secondary;
        options.parallel.quantized_weights = Quantization::kInt8;
        options.parallel.quantized_gradients = Quantization::kInt4;
        expect_as_planned(options, spread);
      }
    }
  }
}

// ZeRO++: 3 M cross between nodes without it, 0.75 M with it, but for scales and padding.
TEST(ZeroTraffic, AcrossMachinesIsAQuarterWithZeroPlusPlus) {
  TrainOptions options = options_of({4, 2}, 3, 3);
  options.model.hidden = 128;
  options.model.layers = 4;
  const std::uint64_t plain = planned(options)->total().links.across;
  options.parallel.quantized_weights = Quantization::kInt8;
  options.parallel.quantized_gradients = Quantization::kInt4;
  options.parallel.secondary_partition = true;
  const std::uint64_t less = planned(options)->total().links.across;
  EXPECT_LE(static_cast<double>(less), 0.27 * static_cast<double>(plain));
  EXPECT_GE(static_cast<double>(less), 0.25 * static_cast<double>(plain));
}

// Whole blocks, trees, and workers that do not fall evenly onto nodes: collectives of all
// workers, by whichever algorithm their communicator chooses.
TEST(ZeroTraffic, OfAllWorkersAtOnceIsPlannedByTheScheduleThatIsChosen) {
  for (const Spread& spread : {Spread{2, 2}, Spread{3, 2}, Spread{4, 2}, Spread{5, 3}}) {
    for (int zero = 1; zero <= 3; ++zero) {
      for (const bool layers : {false, true}) {
        for (const bool tree : {false, true}) {
          if (tree && spread.workers % 2 != 0) continue;
          if (!layers && !tree && spread.workers % 2 == 0) continue;  // by nodes, see above
          TrainOptions options = options_of(spread, zero, tree ? 3 : 1);
          if (tree) options.precision = plan::Precision::kF32;
          options.parallel.partition = layers ? nn::Partition::kLayer : nn::Partition::kTensor;
          options.parallel.reduction =
              tree ? parallel::Reduction::kTree : parallel::Reduction::kFast;
          SCOPED_TRACE(testing::Message()
                       << spread.workers << " workers on " << spread.hosts << ", stage " << zero
                       << (layers ? ", layers" : "") << (tree ? ", tree" : ""));
          expect_as_planned(options, spread);
        }
      }
    }
  }
}

TEST(ZeroTraffic, InsideOneMachineNothingCrosses) {
  TrainOptions options = options_of({4, 1}, 3, 3);
  EXPECT_GT(planned(options)->total().all, 0u);
  EXPECT_EQ(planned(options)->total().links.inside, 4 * planned(options)->total().all);
  EXPECT_EQ(planned(options)->total().links.across, 0u);
}

// What a rank sends of S bytes of gradients: by the textbook for algorithms that have a formula,
// and always what the plan says.
TEST(DdpTraffic, IsThatOfTheAlgorithm) {
  const Spread spread{4, 1};
  std::map<std::string, std::uint64_t> sent;
  std::uint64_t gradients = 0;
  for (const char* algorithm : {"ring", "naive", "butterfly", "rabenseifner"}) {
    TrainOptions options = options_of(spread, 0, 1);
    options.batch.sequences = 16;
    options.parallel.overlap = false;
    options.parallel.algorithm = algorithm;
    SCOPED_TRACE(algorithm);
    expect_as_planned(options, spread);
    for (const std::uint64_t one : count(options, 1, 1).sent) sent[algorithm] += one;
    const nn::MemoryPlan plan = plan_run(options, *make_cpu_ops(1));
    gradients = plan.flat.elements() * size_of(plan.setup.gradient);
  }
  EXPECT_EQ(sent["ring"], 4 * (2 * 3 * gradients / 4));
  EXPECT_EQ(sent["rabenseifner"], 4 * (2 * 3 * gradients / 4));
  EXPECT_EQ(sent["naive"], 4 * 3 * gradients) << "each rank all of it to each other";
  EXPECT_EQ(sent["butterfly"], 4 * 2 * gradients) << "all of it, log2 N times";
}

TEST(DdpTraffic, IsPlannedByTheScheduleThatIsChosen) {
  for (const Spread& spread : {Spread{2, 2}, Spread{3, 2}, Spread{4, 2}, Spread{5, 3}}) {
    // Slow links and quick ones are worth other algorithms.
    for (const char* link : {"", "1Gbit,100us"}) {
      TrainOptions options = options_of(spread, 0, 1);
      options.batch.sequences = 16;
      options.parallel.comm.emulate = link;
      SCOPED_TRACE(testing::Message()
                   << spread.workers << " workers on " << spread.hosts << ", " << link);
      expect_as_planned(options, spread);
      // Many buckets, and rows of the table by themselves.
      options.model.vocabulary = 3001;
      options.parallel.bucket_mb = options.parallel.first_bucket_mb = 0.01;
      EXPECT_GT(planned(options)->rows.links.across, 0u);
      expect_as_planned(options, spread);
    }
  }
}

TEST(DdpTraffic, OfAForcedAlgorithmAndOfTheTreeIsPlanned) {
  const Spread spread{4, 2};
  std::map<std::string, std::uint64_t> across;
  for (const char* algorithm : {"ring", "rabenseifner", "hierarchical", "tree", "naive"}) {
    TrainOptions options = options_of(spread, 0, 3);
    options.parallel.algorithm = algorithm;
    SCOPED_TRACE(algorithm);
    expect_as_planned(options, spread);
    across[algorithm] = planned(options)->gradients.links.across;
  }
  EXPECT_LT(across["hierarchical"], across["naive"]);
  TrainOptions options = options_of(spread, 0, 3);
  options.precision = plan::Precision::kF32;
  options.parallel.reduction = parallel::Reduction::kTree;
  expect_as_planned(options, spread);
}

}  // namespace
}  // namespace lockstep::train::zero_traffic_test
